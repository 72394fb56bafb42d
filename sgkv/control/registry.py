"""Which instance of a fleet holds which KV, and on which device: a hint that engines never wait for."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sgkv.control.places import Device, any_device, bit_of, bits_of, leading, place_of
from sgkv.control.slots import Slots
from sgkv.control.table import HolderTable

Kind = Literal["c", "p"]
"""A full chunk, named by its last page, or a single page."""


class Shelf(NamedTuple):
    """What the hashes of one report are names of."""

    namespace: str
    kind: Kind


@dataclass(slots=True)
class Instance:
    """One store: of an engine, or of a node's daemon."""

    name: str
    epoch: int
    """Of the present account of what it holds. Larger than that of any earlier one."""
    slot: int
    seen: float
    """Monotonic seconds of its last report."""
    sequence: int = 0
    """Number of the report that is expected next."""
    replaced: int | None = None
    """Slot of the account before, which counts until the present one is complete."""
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """How much of a prompt one instance has, from its start."""

    instance: str
    pages: int
    """On any of its devices."""
    devices: dict[Device, int] = field(default_factory=dict)
    """On each alone."""
    draining: bool = False


Verdict = Literal["apply", "repeated", "resync", "outdated"]
"""What becomes of a numbered report: taken; known already; a new full account is wanted, for reports are
missing; refused, for a later process of that name has reported since."""


class Registry:
    """Not thread-safe: the controller's event loop owns it."""

    def __init__(
        self,
        *,
        stale_after: float = 15.0,
        max_hashes: int = 20_000_000,
        max_instances: int = 4096,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """An instance that has not reported for `stale_after` seconds is forgotten with all that it holds.

        Past `max_hashes` new ones are dropped and counted. `clock` gives monotonic seconds.
        """
        self.instances: dict[str, Instance] = {}
        self.hashes = 0
        self.dropped = 0
        """Hashes that were not taken in, because there are as many as there may be."""
        self._stale_after = stale_after
        self._max_hashes = max_hashes
        self._clock = clock
        self._slots = Slots(2 * max_instances)  # an account and the one that is to replace it
        self._names: dict[int, Instance] = {}
        self._tables: defaultdict[Shelf, HolderTable] = defaultdict(HolderTable)
        self._sweeping: Iterator[None] = iter(())
        self.draining: set[str] = set()
        """Names of instances that are to get nothing new, whether they are here or not."""

    def receive(self, name: str, epoch: int, sequence: int) -> Verdict:
        """A report has come; whether its changes are to be applied.

        `sequence` counts the reports of an `epoch` from 0. With a larger epoch an instance begins a full
        account of what it holds; the one before counts until `complete`. Raises ValueError where there are
        more instances than there may be.
        """
        self.expire()
        known = self.instances.get(name)
        if known is None or epoch > known.epoch:
            if sequence:
                return "resync"
            known = self._begin(name, epoch, known)
        elif epoch < known.epoch:
            return "outdated"
        known.seen = self._clock()
        if sequence != known.sequence:
            return "repeated" if sequence < known.sequence else "resync"
        known.sequence += 1
        return "apply"

    def complete(self, name: str) -> None:
        """The instance has said all that it holds: what it held by an earlier account is gone."""
        instance = self.instances[name]
        if instance.replaced is not None:
            self._retire(instance.replaced)
            instance.replaced = None

    def batched_admit(self, shelf: Shelf, hashes: Sequence[bytes], name: str, device: Device) -> None:
        """An instance has these now. A hash is the first 16 bytes of a page's."""
        instance = self.instances[name]
        room = self._max_hashes - self.hashes
        if len(hashes) > room:
            self.dropped += len(hashes) - room
            hashes = hashes[:room]
        self.hashes += self._tables[shelf].add(hashes, bit_of(instance.slot, device))
        self.sweep()

    def batched_evict(self, shelf: Shelf, hashes: Sequence[bytes], name: str, device: Device) -> None:
        """An instance has these no more."""
        if shelf in self._tables:
            bit = bit_of(self.instances[name].slot, device)
            self.hashes -= self._tables[shelf].discard(hashes, bit)

    def batched_p2p_lookup(
        self, namespace: str, hashes: Sequence[bytes], pages_per_chunk: int, limit: int = 64
    ) -> list[Match]:
        """Who has how many leading pages of a chain that begins a prompt: the `limit` longest, longest first.

        O(pages + instances).
        """
        self.expire()
        masks = self._masks(namespace, hashes, pages_per_chunk)
        lanes = self._slots.live(lambda slot: bit_of(slot, Device.GPU))
        longest = leading(any_device(masks, self._slots.highest), lanes)
        alone = leading(masks, self._slots.live(bits_of))
        matches: dict[str, Match] = {}
        for lane, pages in sorted(longest.items(), key=lambda run: -run[1]):
            slot, _ = place_of(lane)
            instance = self._names[slot]
            if instance.name not in matches:  # else it is the shorter of two accounts
                devices = {device: run for device in Device if (run := alone.get(lane + device.lane))}
                matches[instance.name] = Match(instance.name, pages, devices, instance.draining)
            if len(matches) >= limit:
                break
        return list(matches.values())

    def expire(self) -> None:
        """Forget who has been silent for too long."""
        oldest = self._clock() - self._stale_after
        for instance in [one for one in self.instances.values() if one.seen < oldest]:
            self.forget(instance.name)

    def forget(self, name: str) -> None:
        """Drop an instance and all that it holds. It comes back with its next full account."""
        instance = self.instances.pop(name, None)
        if instance is not None:
            for slot in (instance.slot, instance.replaced):
                if slot is not None:
                    self._retire(slot)

    def sweep(self) -> bool:
        """Take some of the records of those that are gone out of memory; False where there are none left."""
        for _ in self._sweeping:
            return True
        if self._slots.retired:
            self._sweeping = self._sweep(frozenset(self._slots.retired))
            return True
        return False

    def _masks(self, namespace: str, hashes: Sequence[bytes], pages_per_chunk: int) -> list[int]:
        """Who has each page, by itself or in a chunk."""
        pages, chunks = (self._tables.get(Shelf(namespace, kind)) for kind in ("p", "c"))
        masks = pages.holders(hashes) if pages else [0] * len(hashes)
        if chunks is None:
            return masks
        lasts = range(pages_per_chunk - 1, len(hashes), pages_per_chunk)
        for last, whole in zip(lasts, chunks.holders([hashes[last] for last in lasts]), strict=True):
            if whole:
                for at in range(last + 1 - pages_per_chunk, last + 1):
                    masks[at] = masks[at] | whole if masks[at] else whole
        return masks

    def _begin(self, name: str, epoch: int, known: Instance | None) -> Instance:
        slot = self._slots.take()
        if known is not None and known.replaced is not None:  # an account that never became complete
            self._retire(known.slot)
        before = None if known is None else (known.slot if known.replaced is None else known.replaced)
        instance = Instance(name, epoch, slot, self._clock(), replaced=before, draining=name in self.draining)
        self.instances[name] = self._names[slot] = instance
        if before is not None:
            self._names[before] = instance
        return instance

    def _retire(self, slot: int) -> None:
        """What it held is not found any more from now on; its records are swept up later."""
        del self._names[slot]
        self._slots.retire(slot)

    def _sweep(self, slots: frozenset[int]) -> Iterator[None]:
        dead = sum(map(bits_of, slots))
        for shelf, table in list(self._tables.items()):
            for shards in table.steps():
                self.hashes -= table.sweep(shards, dead)
                yield
            if not len(table):
                del self._tables[shelf]
        self._slots.reuse(slots)
