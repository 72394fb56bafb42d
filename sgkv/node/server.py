"""The daemon's socket: who connects gets a thread and a conversation."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sgkv.boundary import contained
from sgkv.node.access import peer_of
from sgkv.node.conversation import Conversation
from sgkv.node.framing import Channel
from sgkv.node.service import Rules, Service
from sgkv.node.status import report
from sgkv.node.wire import Refused, Request

logger = logging.getLogger("sgkv")

_BACKLOG = 128
_PAUSE = 0.1
"""Seconds after a connection could not be taken: for want of descriptors it could not at once again."""


class NodeServer:
    """Serves one `Service` on one path. `start`, then `stop`; both once, from one thread."""

    def __init__(self, service: Service, path: Path) -> None:
        self._service = service
        self._path = path
        self._lock = threading.Lock()
        self._open: dict[Conversation, threading.Thread] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._listening = False
        self._stopping = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="sgkv-node-accept", daemon=True)
        self.started = time.time()

    def start(self) -> None:
        """Listen on the path, which is `claimed`. Raises OSError, saying what is wrong with it."""
        self._path.unlink(missing_ok=True)  # of a daemon that was killed: the claim says that it is gone
        before = os.umask(0o777 & ~self._mode())
        try:
            self._socket.bind(str(self._path))
        finally:
            os.umask(before)
        self._socket.listen(_BACKLOG)
        self._listening = True
        self._acceptor.start()

    def follow(self, rules: Rules) -> None:
        """New rules, for what is asked from now on."""
        self._service.rules = rules
        self._path.chmod(self._mode())

    def _mode(self) -> int:
        return 0o666 if self._service.rules.access.users else 0o600

    @property
    def conversations(self) -> list[Conversation]:
        with self._lock:
            return list(self._open)

    def stop(self, timeout: float) -> None:
        """Let nobody in, and let what is under way finish for `timeout` seconds.

        A connection whose call has not ended by then is left to the end of the process: to close it would
        tell an engine that nothing is written into its pages any more.
        """
        self._service.leaving = True
        self._stopping.set()
        with suppress(OSError):  # it never listened
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._listening:
            self._path.unlink(missing_ok=True)
        ends = time.monotonic() + timeout
        with self._lock:
            threads = dict(self._open)
        for conversation in threads:
            conversation.hang_up()
        for thread in threads.values():
            thread.join(max(0.0, ends - time.monotonic()))

    def _accept(self) -> None:
        while not self._service.leaving:
            try:
                sock, _ = self._socket.accept()
            except OSError as error:
                if self._service.leaving:
                    return
                logger.warning("sgkv: a connection could not be taken: %s", error)
                self._stopping.wait(_PAUSE)
                continue
            with contained("taking a connection", self._service.store.counters):
                self._welcome(sock)

    def _welcome(self, sock: socket.socket) -> None:
        if len(self._open) >= self._service.rules.connections:
            self._service.store.counters.add("refused_connections")
            channel: Channel[Request] = Channel(sock, Request)
            channel.send(Refused("the daemon has as many connections as node.connections allows"), 0.0)
            channel.close()
            return
        conversation = Conversation(sock, peer_of(sock), self._service)
        thread = threading.Thread(
            target=self._converse, args=(conversation,), name="sgkv-node-client", daemon=True
        )
        with self._lock:
            self._open[conversation] = thread
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads to give
            with self._lock:
                del self._open[conversation]
            conversation.end()
            raise

    def _converse(self, conversation: Conversation) -> None:
        with contained("a conversation with an engine", self._service.store.counters):
            conversation.run(lambda grant: report(self._service, self.conversations, self.started, grant))
        with self._lock:
            del self._open[conversation]


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """While inside, the path is ours: by a lock, which goes with its process as the socket's file does not.

    Raises OSError where another daemon has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    claim = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(claim, path)
        yield
    finally:
        os.close(claim)


def _lock(claim: int, path: Path) -> None:
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise OSError(
            error.errno, f"another daemon serves {path}: stop it, or name another socket"
        ) from error
