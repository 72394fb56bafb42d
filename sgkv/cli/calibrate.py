"""`sgkv calibrate`: how fast a running server computes, for the gate."""

from __future__ import annotations

from typing import Annotated

import typer


def calibrate(
    server: Annotated[
        str, typer.Argument(metavar="URL", help="Of SGLang or vLLM, e.g. http://127.0.0.1:30000.")
    ],
    *,
    longest: Annotated[int, typer.Option(min=2048, help="Tokens of the longest prompt.")] = 32_768,
    repeats: Annotated[int, typer.Option(min=1, max=20, help="Prompts of each length, beside one.")] = 3,
    api_key: Annotated[str, typer.Option(envvar="SGLANG_API_KEY", help="Where the server wants one.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure prefill by length with prompts that no cache knows, and print the gate's settings.

    On an idle server: what waits behind other requests is measured with them.
    """
    from sgkv.cli.calibrate_runs import run_calibration

    raise typer.Exit(run_calibration(server, longest, repeats, api_key, as_json=json))
