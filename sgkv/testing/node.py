"""The node's daemon as a process, for tests and benchmarks."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sgkv.node.look import status_of
from sgkv.testing.process import ProcessTree
from sgkv.testing.waiting import wait_until

_START_SECONDS, _STOP_SECONDS = 60.0, 10.0


class NodeProcess:
    """`sgkv node` over `settings`, its socket, file and log in `folder`; ``with NodeProcess(...)`` runs it.

    After `kill` or `stop` it can be started again. One thread.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "node.sock"
        self.file = folder / "node.json"
        self._log = folder / "node.log"
        self._tree: ProcessTree | None = None
        self.configure(settings)

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Write the file; a running daemon reads it on SIGHUP."""
        node = {"socket": str(self.socket), **settings.get("node", {})}
        self.file.write_text(json.dumps({**settings, "node": node}))

    @property
    def tree(self) -> ProcessTree:
        """Raises RuntimeError when it was not started."""
        if self._tree is None:
            raise RuntimeError("the daemon is not running")
        return self._tree

    @property
    def pid(self) -> int:
        return self.tree.pid

    def start(self) -> Self:
        """Start and wait until engines may attach."""
        mine = {k: v for k, v in os.environ.items() if not k.startswith("SGKV_")}
        command = [sys.executable, "-m", "sgkv", "node", "--config", str(self.file)]
        self._tree = ProcessTree(command, mine, self._log)
        self._tree.wait_for_line("sgkv node: serving", _START_SECONDS)
        return self

    def status(self) -> Any:
        """What `sgkv node status --json` says."""
        return status_of(self.socket)[1]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def pause(self) -> None:
        """SIGSTOP; returns when every thread has stopped. It holds its connections and answers nobody."""
        self.signal(signal.SIGSTOP)
        tasks = Path("/proc", str(self.pid), "task")
        wait_until(lambda: all(map(_stopped, tasks.iterdir())), "the daemon to stop", _STOP_SECONDS)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        if self._tree is not None:
            self._tree.kill()
            self._tree = None

    def stop(self) -> None:
        """SIGTERM, and wait for it to drain."""
        if self._tree is not None:
            self._tree.stop()
            self._tree = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.kill()


def _stopped(task: Path) -> bool:
    """Whether a thread is in state T of proc(5)."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
