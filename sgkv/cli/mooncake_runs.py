"""What `sgkv mooncake up` and `sgkv doctor mooncake` do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import typer

from sgkv.backends.mooncake import LibraryMissingError, MooncakeOptions
from sgkv.backends.mooncake.diagnosis import Finding, diagnose
from sgkv.testing.loopback import alone, in_loopback
from sgkv.testing.mooncake import MooncakeMaster, StorageNode

_MARKS = {True: "ok  ", False: "BAD ", None: "note"}
_LEASE_MS = 10_000
"""The master's own default."""


def print_findings(options: MooncakeOptions) -> int:
    """Look, and say what was found. Returns the exit code."""
    findings: list[Finding] = []
    for finding in diagnose(options):
        findings.append(finding)
        typer.echo(f"{_MARKS[finding.ok]} {finding.text}")
    return int(any(finding.ok is False for finding in findings))


def run_pool(size: int, port: int, admin_port: int, command: Sequence[str], *, isolated: bool) -> int:
    """Serve until `command` or the user ends it. Returns the command's exit code, or 1 without a pool."""
    if isolated and not alone():
        return _isolate()
    with tempfile.TemporaryDirectory(prefix="sgkv-mooncake-") as folder:
        master = MooncakeMaster(Path(folder), port=port, admin_port=admin_port, lease_ms=_LEASE_MS)
        try:
            with master, StorageNode(Path(folder), master.address, size):
                _announce(master)
                if command:
                    return subprocess.run(command, check=False).returncode  # noqa: S603 - the user's own
                _wait_for_the_user()
        except (LibraryMissingError, RuntimeError, TimeoutError) as error:
            typer.echo(f"no pool: {error}", err=True)
            return 1
    return 0


def _isolate() -> int:
    """The same command again, alone in a network. Returns only where that may not be."""
    try:
        again = in_loopback([sys.executable, "-m", "sgkv", *sys.argv[1:]])
        os.execvp(again[0], again)  # noqa: S606 - ourselves
    except PermissionError as error:
        typer.echo(f"--isolated: {error}", err=True)
    return 1


def _announce(master: MooncakeMaster) -> None:
    typer.echo("# The tier for this pool:")
    typer.echo(f"tiers:\n  - type: cpu\n  - type: mooncake\n    master: {master.address}")
    typer.echo(f"    admin: {master.admin.url}")
    if alone():
        return
    typer.echo(
        "warning: the storage node and every server listen on all interfaces, unauthenticated, as all of "
        "Mooncake's clients do: whoever reaches this machine can read and change what is stored. "
        "--isolated prevents it.",
        err=True,
    )


def _wait_for_the_user() -> None:
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    typer.echo("# Ctrl-C ends it.")
    over.wait()
