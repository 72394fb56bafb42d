"""Prompts that are to stay where they are: by whom, and until when."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgkv.control.operations import TooManyError

if TYPE_CHECKING:
    from sgkv.control.keeping import Keeper

_MOST_PINS = 10_000
_MOST_OF_OWNER = 1000
LONGEST = 30 * 86_400.0
"""Seconds; a pin that nobody renews ends."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Pages of one prompt on some instances."""

    id: str
    owner: str
    tenant: str
    namespace: str
    hashes: tuple[str, ...]
    instances: frozenset[str]
    expires_at: float
    """Unix seconds."""


class Pins:
    """Of the event loop alone."""

    def __init__(self, clock: Callable[[], float] = time.time, keeper: Keeper | None = None) -> None:
        """`keeper` is told of each that is kept, and of each that ends."""
        self._clock = clock
        self._keeper = keeper
        self._pins: dict[str, Pin] = {}

    def __iter__(self) -> Iterator[Pin]:
        return iter(list(self._pins.values()))

    def make(
        self,
        owner: str,
        tenant: str,
        namespace: str,
        hashes: list[str],
        instances: frozenset[str],
        seconds: float,
    ) -> Pin:
        """Not kept yet. Raises TooManyError for an owner, or a fleet, with as many as there may be."""
        of_owner = sum(pin.owner == owner for pin in self._pins.values())
        if of_owner >= _MOST_OF_OWNER or len(self._pins) >= _MOST_PINS:
            raise TooManyError(f"there are {of_owner} pins of {owner} and {len(self._pins)} in all")
        until = self._clock() + seconds
        return Pin(uuid.uuid4().hex, owner, tenant, namespace, tuple(hashes), instances, until)

    def keep(self, pin: Pin) -> None:
        self._pins[pin.id] = pin
        if self._keeper is not None:
            self._keeper.keep_pin(pin)

    def get(self, id_: str) -> Pin | None:
        return self._pins.get(id_)

    def drop(self, pin: Pin) -> None:
        del self._pins[pin.id]
        if self._keeper is not None:
            self._keeper.drop_pin(pin)

    def alone(self, pin: Pin) -> dict[str, list[str]]:
        """By instance the hashes that no other pin holds there."""
        left: dict[str, list[str]] = {}
        for instance in pin.instances:
            others = [other for other in self.on(instance, pin.namespace) if other.id != pin.id]
            kept = {key for other in others for key in other.hashes}
            left[instance] = [key for key in pin.hashes if key not in kept]
        return {instance: hashes for instance, hashes in left.items() if hashes}

    def on(self, instance: str, namespace: str | None = None) -> list[Pin]:
        return [
            pin
            for pin in self._pins.values()
            if instance in pin.instances and namespace in (None, pin.namespace)
        ]

    def expired(self) -> list[Pin]:
        now = self._clock()
        return [pin for pin in self._pins.values() if pin.expires_at <= now]
