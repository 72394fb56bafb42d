"""A process tree that is read line by line, ends for certain, and dies with its owner."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

_GUARD = 'read -r _; kill -s KILL -- "-$1"'
"""Blocks on a pipe that only the owner holds open: its end is the owner's end, even by SIGKILL."""


class ProcessTree:
    """A command in a process group of its own, its output going to a file through a reader thread.

    Every process of the tree inherits the output pipe, so the end of the pipe is the end of all of
    them: nothing here polls. Methods may be called from any thread.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._leader = subprocess.Popen(  # noqa: S603 - the caller's own command
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._guard = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", _GUARD, "guard", str(self._leader.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        name, output = f"read {log.name}", cast("IO[bytes]", self._leader.stdout)
        self._reader = threading.Thread(target=self._read, args=(output,), name=name, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the leader, which is also the id of the process group."""
        return self._leader.pid

    @property
    def alive(self) -> bool:
        return not self._ended

    def wait_for_line(self, pattern: str, timeout: float) -> str:
        """The first output line in which `pattern` is found, past or future.

        Raises `RuntimeError` with the last lines when the tree ends or `timeout` seconds pass.
        """
        matcher, seen = re.compile(pattern), 0
        with self._changed:

            def found() -> str | bool:
                nonlocal seen
                new, seen = self._lines[seen:], len(self._lines)
                return next(filter(matcher.search, new), self._ended)

            line = self._changed.wait_for(found, timeout)
        if isinstance(line, str):
            return line
        why = "ended" if line else f"has not printed it after {timeout:.0f} s"
        raise RuntimeError(f"waiting for {pattern!r}: the process {why}\n{self.tail()}")

    def members(self) -> list[int]:
        """Ids of the processes of the group that exist now."""
        return [int(process.name) for process in _members(self.pid)]

    def cpu_seconds(self) -> float:
        """User and system time of the living processes, to a hundredth of a second."""
        ticks = 0
        for process in _members(self.pid):
            with suppress(OSError):  # it may end while we look
                after_name = (process / "stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, after_name[11:13]))  # utime and stime in proc(5)
        return ticks / os.sysconf("SC_CLK_TCK")

    def shared_memory(self, prefix: str) -> set[Path]:
        """Files below /dev/shm called `prefix`... that processes of the group have mapped now."""
        found = set()
        for process in _members(self.pid):
            with suppress(OSError):
                maps = (process / "maps").read_text()
                found |= set(re.findall(rf"/dev/shm/{re.escape(prefix)}\S*", maps))  # noqa: S108
        return set(map(Path, found))

    def tail(self, lines: int = 40, width: int = 400) -> str:
        """The last output, long lines cut."""
        with self._changed:
            return "\n".join(line[:width] for line in self._lines[-lines:])

    def stop(self, timeout: float = 30.0) -> None:
        """SIGTERM to the leader; SIGKILL to the group when anything is left after `timeout` seconds."""
        if self.alive:
            self._leader.send_signal(signal.SIGTERM)
            self._wait_for_end(timeout)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to every process of the group; returns when all are gone. Idempotent."""
        with suppress(ProcessLookupError):
            if self.alive:
                os.killpg(self.pid, signal.SIGKILL)
        if not self._wait_for_end(30.0) or not all(_exits(pid, 30.0) for pid in self.members()):
            raise RuntimeError(f"processes of group {self.pid} survive SIGKILL\n{self.tail()}")
        self._leader.wait()
        self._guard.kill()
        self._guard.communicate()
        self._reader.join()

    def _wait_for_end(self, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._ended, timeout)

    def _read(self, output: IO[bytes]) -> None:
        try:
            with output, self.log.open("ab", buffering=0) as log:
                for line in output:
                    log.write(line)
                    with self._changed:
                        self._lines.append(line.decode(errors="replace").rstrip("\n"))
                        self._changed.notify_all()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()


def _exits(pid: int, timeout: float) -> bool:
    """Wait for a process that need not be a child: its files close a moment before it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], timeout)[0])
    finally:
        os.close(handle)


def _members(group: int) -> Iterator[Path]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getpgid(int(process.name)) == group:
                yield process
