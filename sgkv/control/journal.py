"""What came to a store's tiers and left them, until it is reported."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice, repeat

from sgkv.backends.keygroups import Watcher
from sgkv.control.places import Device
from sgkv.control.registry import Kind
from sgkv.control.table import HASH_BYTES
from sgkv.control.wire import Change
from sgkv.identity import DIGEST_HEX

Event = tuple[Device, str, bool]


class Journal:
    """Events of all tiers, at most `most`. Noted by any thread under a backend's lock, drained by one."""

    def __init__(self, most: int) -> None:
        self.lost = False
        """There were more than fit: only a full account says what is there."""
        self._most = most
        self._events: deque[Event] = deque()

    def watcher(self, device: Device) -> Watcher:
        return partial(self._note, device)

    def restart(self) -> None:
        """Forget all; done before tiers are asked what they hold, so that nothing falls between."""
        self._events.clear()
        self.lost = False

    def take(self, limit: int) -> list[Event]:
        """The oldest events, which are forgotten."""
        events = self._events
        return [events.popleft() for _ in range(min(limit, len(events)))]

    def _note(self, device: Device, key: str, came: bool) -> None:
        if len(self._events) < self._most:
            self._events.append((device, key, came))
        else:
            self.lost = True


def account(device: Device, keys: Iterable[str]) -> Iterator[Event]:
    """Keys that are there, as if they had just come."""
    return zip(repeat(device), keys, repeat(True))


def batches(events: Iterator[Event], limit: int) -> Iterator[list[Change]]:
    while some := list(islice(events, limit)):
        yield changes(some)


def changes(events: Iterable[Event]) -> list[Change]:
    """In their order; neighbours that differ in their hashes alone become one."""
    grouped: list[tuple[tuple[str, Kind, Device, bool], bytearray]] = []
    for device, key, came in events:
        kind: Kind = "c" if "/c/" in key else "p"
        # A cpu tier's groups also name the byte order (docs/format.md), which no lookup asks for.
        group = (key[:DIGEST_HEX], kind, device, came)
        if not grouped or grouped[-1][0] != group:
            grouped.append((group, bytearray()))
        grouped[-1][1].extend(bytes.fromhex(key[-64 : -64 + 2 * HASH_BYTES]))
    return [Change(*group, bytes(hashes)) for group, hashes in grouped]
