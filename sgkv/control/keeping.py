"""What only the controller knows, kept on a Valkey server: pins, and instances that are being drained.

Everything else a controller that starts anew is told by the stores. Changes are written by a thread of its
own, the latest of each; while the server is away they wait, and nobody waits for them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from sgkv.control.pins import Pin

logger = logging.getLogger("sgkv")

_TIMEOUT = 5.0
_LONGEST_PAUSE = 30.0
_CLOSE_SECONDS = 5.0
_PIN, _DRAINING = "pin/", "draining/"


class KeepingError(Exception):
    """What was kept cannot be read; the text says why."""


@dataclass(slots=True)
class Kept:
    """What there was at the start."""

    pins: list[Pin] = field(default_factory=list)
    draining: frozenset[str] = frozenset()


class Keeper:
    """One hash on the server, a field for each thing. Any thread."""

    def __init__(self, url: str, name: str = "sgkv/control", *, pause: float = 1.0) -> None:
        """`url` as the `valkey` package takes it, e.g. ``valkeys://user:secret@host:6379/0``.

        `pause` in seconds after a failure, doubled with each. Raises ImportError without that package and
        ValueError for another URL.
        """
        from valkey import Valkey

        self._server: Any = Valkey.from_url(
            url, socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT, health_check_interval=30
        )
        self._name = name
        self._pause = pause
        self._changed = threading.Condition(threading.Lock())
        self._pending: dict[str, bytes | None] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="sgkv-control-keeper", daemon=True)
        self._thread.start()

    def load(self) -> Kept:
        """Raises KeepingError: a controller that does not know its pins would let them go."""
        from valkey.exceptions import ValkeyError

        try:
            found: Mapping[bytes, bytes] = self._server.hgetall(self._name)
            pins = [_pin(value) for key, value in found.items() if key.startswith(_PIN.encode())]
        except (ValkeyError, OSError, msgspec.MsgspecError, TypeError) as error:
            raise KeepingError(f"what the controller has kept cannot be read: {error}") from error
        names = (key.decode() for key in found if key.startswith(_DRAINING.encode()))
        return Kept(pins, frozenset(name.removeprefix(_DRAINING) for name in names))

    def keep_pin(self, pin: Pin) -> None:
        self._note(f"{_PIN}{pin.id}", msgspec.json.encode(asdict(pin)))

    def drop_pin(self, pin: Pin) -> None:
        self._note(f"{_PIN}{pin.id}", None)

    def keep_draining(self, instance: str) -> None:
        self._note(f"{_DRAINING}{instance}", b"1")

    def drop_draining(self, instance: str) -> None:
        self._note(f"{_DRAINING}{instance}", None)

    @property
    def waiting(self) -> int:
        """Changes that are not on the server yet."""
        with self._changed:
            return len(self._pending)

    def close(self) -> None:
        """Within seconds, when the server answers with everything written."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)
        self._server.close()

    def _note(self, key: str, value: bytes | None) -> None:
        with self._changed:
            self._pending[key] = value
            self._changed.notify_all()

    def _run(self) -> None:
        pause = self._pause
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._pending) or self._closed)
                if not self._pending:
                    return
                changes = dict(self._pending)
            if self._write(changes):
                pause = self._pause
                continue
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, pause):
                    return
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _write(self, changes: Mapping[str, bytes | None]) -> bool:
        from valkey.exceptions import ValkeyError

        try:
            with self._server.pipeline(transaction=False) as batch:
                for key, value in changes.items():
                    batch.hdel(self._name, key) if value is None else batch.hset(self._name, key, value)
                batch.execute()
        except (ValkeyError, OSError) as error:
            logger.warning("sgkv: pins are not kept for now: %s", error)
            return False
        with self._changed:
            for key, value in changes.items():
                if key in self._pending and self._pending[key] is value:
                    del self._pending[key]
        return True


def _pin(value: bytes) -> Pin:
    told = msgspec.json.decode(value)
    return Pin(**{**told, "hashes": tuple(told["hashes"]), "instances": frozenset(told["instances"])})
