"""The commands and their options."""

from __future__ import annotations

import platform
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sgkv import __version__
from sgkv.cli.calibrate import calibrate
from sgkv.cli.control import control_app
from sgkv.cli.doctor import doctor_app
from sgkv.cli.inspect import inspect_app
from sgkv.cli.keys import keys_app
from sgkv.cli.mooncake import mooncake_app
from sgkv.cli.node import node_app
from sgkv.cli.prewarm import prewarm_app
from sgkv.cli.recode import recode
from sgkv.cli.replay import replay
from sgkv.cli.router import router
from sgkv.cli.s3 import s3_app
from sgkv.cli.why_miss import divergence, why_miss

app = typer.Typer(
    name="sgkv",
    help="The KV cache of LLM inference as a storage asset.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
config_app = typer.Typer(help="Show or check a configuration.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(node_app, name="node")
app.add_typer(control_app, name="control")
app.add_typer(prewarm_app, name="prewarm")
app.add_typer(s3_app, name="s3")
app.add_typer(mooncake_app, name="mooncake")
app.add_typer(doctor_app, name="doctor")
app.add_typer(keys_app, name="keys")
app.add_typer(inspect_app, name="inspect")
app.command("calibrate")(calibrate)
app.command("recode")(recode)
app.command("replay")(replay)
app.command("router")(router)
app.command("why-miss")(why_miss)
app.command("divergence")(divergence)

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="YAML, TOML or JSON; default: $SGKV_CONFIG.")
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Also write the result here.")
]


class Format(StrEnum):
    """How `config show` prints."""

    YAML = "yaml"
    JSON = "json"


class Mode(StrEnum):
    """How SGLang is told to use sgkv."""

    FLAG = "flag"
    DYNAMIC = "dynamic"


class ConnectorRole(StrEnum):
    """Roles of vLLM's connectors."""

    BOTH = "kv_both"
    PREFILL = "kv_producer"
    DECODE = "kv_consumer"


class DemoEngine(StrEnum):
    """Whose prompts the demo serves."""

    SGLANG = "sglang"
    VLLM = "vllm"
    BOTH = "both"


def main() -> None:
    """Entry point of the `sgkv` script and of `python -m sgkv`."""
    app()


@app.command()
def version() -> None:
    """Print sgkv's version and Python's."""
    typer.echo(f"sgkv {__version__}, Python {platform.python_version()}")


@config_app.command("show")
def config_show(
    config: ConfigOption = None,
    output: Annotated[
        Format, typer.Option("--format", help="yaml has comments, json is for programs.")
    ] = Format.YAML,
) -> None:
    """Print every setting in effect, and where each comes from."""
    from sgkv.cli.config import show

    raise typer.Exit(show(config, output))


@config_app.command("validate")
def config_validate(
    file: Annotated[Path, typer.Argument(help="YAML, TOML or JSON.")],
    *,
    machine: Annotated[
        bool,
        typer.Option("--machine/--no-machine", help="Also check it against this machine's memory and disks."),
    ] = True,
) -> None:
    """Check a file; exit code 2 with everything that is wrong with it."""
    from sgkv.cli.config import validate

    raise typer.Exit(validate(file, machine=machine))


@app.command("sglang-args")
def sglang_args(
    config: ConfigOption = None,
    mode: Annotated[
        Mode, typer.Option(help="flag needs sgkv's plugin; dynamic works without it.")
    ] = Mode.FLAG,
    *,
    linker: Annotated[
        bool, typer.Option("--linker", help="Between device and store, without HiCache's host pools.")
    ] = False,
) -> None:
    """Print the flags that make SGLang use sgkv, quoted for a shell."""
    from sgkv.cli.sglang_args import print_flags

    raise typer.Exit(print_flags(config, mode, linker=linker))


@app.command("vllm-args")
def vllm_args(
    config: ConfigOption = None,
    host_memory: Annotated[
        str, typer.Option(help="Of vLLM's own first tier, in host memory, e.g. 32GiB.")
    ] = "4GiB",
    *,
    connector: Annotated[
        bool, typer.Option("--connector", help="Between blocks and store, without vLLM's host memory.")
    ] = False,
    role: Annotated[
        ConnectorRole, typer.Option(help="Of the connector: prefill and decode on engines of their own.")
    ] = ConnectorRole.BOTH,
) -> None:
    """Print the flag that makes vLLM use sgkv, quoted for a shell."""
    from sgkv.cli.vllm_args import print_connector_flags, print_flags

    if connector:
        raise typer.Exit(print_connector_flags(config, role))
    raise typer.Exit(print_flags(config, host_memory))


@app.command()
def demo(
    json: JsonOption = None,
    engine: Annotated[
        DemoEngine, typer.Option(help="both: what one engine computed is read by the other.")
    ] = DemoEngine.SGLANG,
) -> None:
    """Serve a prompt with a real engine, kill it, and serve it again from the store."""
    from sgkv.demo import run_demo

    raise typer.Exit(run_demo(engine, json_path=json))


@app.command()
def bench(
    suites: Annotated[list[str], typer.Argument(metavar="SUITE...", help="What to measure.")],
    json: JsonOption = None,
) -> None:
    """Measure sgkv against the plainest way to move the same bytes."""
    from sgkv.bench import run

    raise typer.Exit(run(suites, json))
