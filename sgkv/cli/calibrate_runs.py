"""What `sgkv calibrate` does."""

from __future__ import annotations

import json

import httpx
import typer
from rich.console import Console

from sgkv.cli.config import USAGE
from sgkv.decide.calibrating import LENGTHS, CalibrationError, Measured, asking, calibrate, served_model

_TIMEOUT = 600.0


def run_calibration(server: str, longest: int, repeats: int, api_key: str, *, as_json: bool) -> int:
    """Returns the exit code."""
    lengths = [length for length in LENGTHS if length <= longest]
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with (
            httpx.Client(base_url=server, timeout=_TIMEOUT, headers=headers) as client,
            Console(stderr=True).status("asking") as status,
        ):
            ask = asking(client, served_model(client))
            found = calibrate(ask, lengths, repeats, lambda length: status.update(f"{length} tokens"))
    except (httpx.HTTPError, CalibrationError, ValueError) as error:
        typer.echo(f"sgkv calibrate: {server}: {error}", err=True)
        return USAGE
    typer.echo(json.dumps(_facts(found)) if as_json else _settings(found))
    return 0


def _facts(found: Measured) -> dict[str, object]:
    return {
        "prefill_tokens_s": round(found.prefill.tokens_s, 1),
        "prefill_half_length": round(found.prefill.half_length, 1),
        "overhead_s": found.overhead,
        "worst_error": found.worst,
        "ttft_s": {str(length): took for length, took in found.seconds.items()},
    }


def _settings(found: Measured) -> str:
    """YAML, with what it was concluded from as comments."""
    times = (f"#   {length} tokens: {took:.3f} s" for length, took in found.seconds.items())
    return "\n".join(
        [
            f"# time to first token, and {found.overhead * 1e3:.0f} ms of it whatever the length;",
            f"# the settings miss none of these by more than {found.worst:.0%}:",
            *times,
            "gate:",
            "  mode: shadow",
            f"  prefill_tokens_s: {found.prefill.tokens_s:.1f}",
            f"  prefill_half_length: {found.prefill.half_length:.0f}",
        ]
    )
