"""`sgkv prewarm`: the commands and their options. What they do is in `sgkv.cli.prewarm_runs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXIT_CODES = (
    "Exit code: 0 all well, 1 bad or failed items, 2 bad usage or configuration, 3 gave up, 130 interrupted."
)

prewarm_app = typer.Typer(
    help="Fill a store before traffic: compute prompts, copy between tiers, verify.", no_args_is_help=True
)

_TRIES_A_PROMPT = 12
"""Three minutes' worth: a server that is busy says no for longer than a tier that stumbles."""


def _size(text: str) -> int:
    from sgkv.config.units import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _rate(text: str) -> int:
    rate = _size(text.removesuffix("/s"))
    if not rate:
        raise typer.BadParameter("nothing would ever move")
    return rate


def _seconds(text: str) -> float:
    from sgkv.config.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="YAML, TOML or JSON; default: $SGKV_CONFIG.")
]
Namespaces = Annotated[
    list[str] | None,
    typer.Option("--namespace", metavar="DIGEST", help="Only this one; may be given again. Default: all."),
]
Keys = Annotated[Path | None, typer.Option("--keys", metavar="FILE", help="Only these keys, one a line.")]
Hottest = Annotated[
    int | None,
    typer.Option(parser=_size, metavar="SIZE", help="Only what was used or written last, up to this size."),
]
MaxBytes = Annotated[
    int | None, typer.Option(parser=_size, metavar="SIZE", help="Move no more than this in this run.")
]
Bandwidth = Annotated[
    int | None,
    typer.Option(parser=_rate, metavar="SIZE", help="Bytes a second, e.g. 200MB; default: no limit."),
]
Workers = Annotated[int, typer.Option(min=1, max=64, help="Items under way at once, each with one buffer.")]
Patience = Annotated[
    float,
    typer.Option(parser=_seconds, metavar="TIME", help="Give up when nothing has worked for so long."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the report here.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
State = Annotated[
    Path | None,
    typer.Option("--state", metavar="FILE", help="What is done; an interrupted run goes on from it."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Forget what the state file says.")]
From = Annotated[str | None, typer.Option("--from", metavar="TIER", help="NAME or FILE:NAME.")]
To = Annotated[str | None, typer.Option("--to", metavar="TIER", help="NAME or FILE:NAME.")]


@prewarm_app.command(epilog=EXIT_CODES)
def compute(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Prompts: .jsonl, or text.")],
    *,
    url: Annotated[str, typer.Option(help="The server.")] = "http://127.0.0.1:30000",
    model: Annotated[str | None, typer.Option(help="Default: what a line names, else the server's.")] = None,
    priority: Annotated[
        str, typer.Option(help="auto: the lowest, where the server has priorities. none, or a number.")
    ] = "auto",
    lines: Annotated[bool, typer.Option("--lines", help="Each line of a text file is a prompt.")] = False,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="OPENAI_API_KEY", show_envvar=True, help="Where the server asks for one."),
    ] = None,
    wait_stored: Annotated[
        float,
        typer.Option(parser=_seconds, metavar="TIME", help="Wait so long for the server to have written it."),
    ] = 60.0,
    max_bytes: MaxBytes = None,
    bandwidth: Bandwidth = None,
    workers: Workers = 2,
    patience: Patience = 300.0,
    state: State = None,
    fresh: Fresh = False,
    dry_run: DryRun = False,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Send prompts through a running SGLang server, so that their KV lands in its store.

    Sizes are those of the prompts in their files. A prompt that was answered is noted in the state file
    (default: beside the first FILE) and not sent again.
    """
    from sgkv.cli.prewarm_runs import ComputeOptions, run_compute
    from sgkv.cli.prewarm_shell import Common

    common = Common(
        workers, patience, bandwidth, dry_run=dry_run, json_path=json, quiet=quiet, attempts=_TRIES_A_PROMPT
    )
    options = ComputeOptions(
        files, url, model, priority, lines, api_key, wait_stored, max_bytes, state, fresh
    )
    raise typer.Exit(run_compute(options, common))


@prewarm_app.command(epilog=EXIT_CODES)
def pull(
    *,
    config: Config = None,
    source: From = None,
    target: To = None,
    namespace: Namespaces = None,
    keys: Keys = None,
    hottest: Hottest = None,
    max_bytes: MaxBytes = None,
    bandwidth: Bandwidth = None,
    workers: Workers = 4,
    patience: Patience = 300.0,
    dry_run: DryRun = False,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Copy from a far tier to a near one, what was used last first, before a node takes traffic.

    Default: from the last tier of the configuration to the first below memory.
    """
    from sgkv.cli.prewarm_runs import CopyOptions, Selecting, run_copy
    from sgkv.cli.prewarm_shell import Common

    common = Common(workers, patience, bandwidth, dry_run=dry_run, json_path=json, quiet=quiet)
    options = CopyOptions(
        "pull", config, source, target, Selecting(namespace, keys, hottest), max_bytes, hottest_first=True
    )
    raise typer.Exit(run_copy(options, common))


@prewarm_app.command(epilog=EXIT_CODES)
def push(
    *,
    config: Config = None,
    source: From = None,
    target: To = None,
    namespace: Namespaces = None,
    keys: Keys = None,
    hottest: Hottest = None,
    max_bytes: MaxBytes = None,
    bandwidth: Bandwidth = None,
    workers: Workers = 4,
    patience: Patience = 300.0,
    dry_run: DryRun = False,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Copy from a near tier to a far one, what was used last last, so that the order by age is kept.

    Default: from the first tier of the configuration below memory to the last.
    """
    from sgkv.cli.prewarm_runs import CopyOptions, Selecting, run_copy
    from sgkv.cli.prewarm_shell import Common

    common = Common(workers, patience, bandwidth, dry_run=dry_run, json_path=json, quiet=quiet)
    options = CopyOptions("push", config, source, target, Selecting(namespace, keys, hottest), max_bytes)
    raise typer.Exit(run_copy(options, common))


@prewarm_app.command(epilog=EXIT_CODES)
def sync(
    source: Annotated[str, typer.Option("--from", metavar="TIER", help="NAME or FILE:NAME.")],
    target: Annotated[str, typer.Option("--to", metavar="TIER", help="NAME or FILE:NAME.")],
    *,
    both: Annotated[bool, typer.Option("--both", help="And back: in the end both have everything.")] = False,
    config: Config = None,
    namespace: Namespaces = None,
    keys: Keys = None,
    hottest: Hottest = None,
    max_bytes: MaxBytes = None,
    bandwidth: Bandwidth = None,
    workers: Workers = 4,
    patience: Patience = 300.0,
    dry_run: DryRun = False,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Copy between any two tiers, such as the buckets of two zones. Nothing is deleted."""
    from sgkv.cli.prewarm_runs import CopyOptions, Selecting, run_copy
    from sgkv.cli.prewarm_shell import Common

    common = Common(workers, patience, bandwidth, dry_run=dry_run, json_path=json, quiet=quiet)
    options = CopyOptions(
        "sync", config, source, target, Selecting(namespace, keys, hottest), max_bytes, both=both
    )
    raise typer.Exit(run_copy(options, common))


@prewarm_app.command(epilog=EXIT_CODES)
def verify(
    tier: Annotated[str, typer.Option("--tier", metavar="TIER", help="NAME or FILE:NAME.")],
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Delete what is corrupt or foreign.")] = False,
    delete_expired: Annotated[
        bool, typer.Option("--delete-expired", help="Delete what is past its ttl.")
    ] = False,
    config: Config = None,
    namespace: Namespaces = None,
    keys: Keys = None,
    hottest: Hottest = None,
    max_bytes: MaxBytes = None,
    bandwidth: Bandwidth = None,
    workers: Workers = 4,
    patience: Patience = 300.0,
    state: State = None,
    fresh: Fresh = False,
    dry_run: DryRun = False,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Read every blob of a tier and check its header, its name and all checksums.

    An interrupted run goes on where it was (state file, default: in the user's cache folder); a complete
    one leaves no state.
    """
    from sgkv.cli.prewarm_runs import Selecting, VerifyOptions, run_verify
    from sgkv.cli.prewarm_shell import Common

    common = Common(workers, patience, bandwidth, dry_run=dry_run, json_path=json, quiet=quiet)
    options = VerifyOptions(
        config, tier, Selecting(namespace, keys, hottest), max_bytes, delete, delete_expired, state, fresh
    )
    raise typer.Exit(run_verify(options, common))
