"""Which blob lies where in the arena, who holds it, and what goes when room is needed.

Bookkeeping only; not thread-safe. Every call is O(1) in Python but for making room across block
sizes, so that the backend's lock is held for microseconds a batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sgkv.backends.base import Status
from sgkv.backends.cpu.slabs import IMPOSSIBLE, SlabAllocator, block_size
from sgkv.backends.eviction import EvictionPolicy
from sgkv.backends.keygroups import KeyGroups, Watcher, group_of

_COLDEST = 64
"""How many victims are looked through for one of the wanted size before slabs are emptied."""


@dataclass(slots=True, eq=False)
class Entry:
    """A block and the blob in it."""

    key: str
    group: str
    """Of the key."""
    offset: int
    size: int
    block: int
    """Bytes that it takes."""
    expires_at: int
    modified: float
    refs: int = 0
    """Leases, reads under way, and the reservation itself. The block is not reused while > 0."""
    pinned: bool = False
    after: str | None = None
    """Key of the blob that this one continues."""
    published: bool = False
    """In the index: False before commit and after delete."""


class BlobIndex:
    """Key -> entry over a slab allocator, with eviction in the order of `policy`."""

    def __init__(self, capacity: int, policy: EvictionPolicy) -> None:
        self.entries: dict[str, Entry] = {}
        """Published blobs. `in` is safe without the lock."""
        self.slabs = SlabAllocator(capacity)
        self.expiring = 0
        """How many published entries have an expiry."""
        self.refs = 0
        self.pinned_bytes = 0
        self.evicted_blobs = 0
        self.evicted_bytes = 0
        self._by_offset: dict[int, Entry] = {}
        self._policy = policy
        self._groups = KeyGroups()
        self._held: Counter[str] = Counter()
        """Bytes of blocks by group of keys, reservations and deleted blobs in use among them."""

    def reserve(
        self, key: str, size: int, expires_at: int, now: float, after: str | None = None
    ) -> Entry | Status:
        """A block for a new blob, or EXISTS, or FULL. End it with `commit` or `release`."""
        if key in self.entries and self._live(key, now) is not None:
            return Status.EXISTS
        block = block_size(size)
        offset = self.slabs.allocate(block)
        if offset is None and (offset := self._make_room(block)) is None:
            return Status.FULL
        group = group_of(key)
        entry = Entry(key, group, offset, size, block, expires_at, now, 1, False, after)
        self._by_offset[offset] = entry
        self._held[group] += block
        self.refs += 1
        return entry

    def commit(self, entry: Entry) -> Status:
        """Publish a reservation; EXISTS where another one of its key was faster."""
        if entry.key in self.entries:
            self.release(entry)
            return Status.EXISTS
        entry.published = True
        self.entries[entry.key] = entry
        self.expiring += entry.expires_at > 0
        self._groups.add(entry.key, entry.group)
        self._policy.admit(entry.key, entry.size, after=entry.after)
        self.release(entry)
        return Status.OK

    def acquire(self, key: str, now: float) -> Entry | None:
        """Hold a published blob where it lies until `release`."""
        entry = self._live(key, now)
        if entry is not None:
            entry.refs += 1
            self.refs += 1
        return entry

    def release(self, entry: Entry) -> None:
        entry.refs -= 1
        self.refs -= 1
        if not entry.refs and not entry.published:
            self._free(entry)

    def touch(self, keys: Sequence[str]) -> None:
        self._policy.touch(keys)

    def reorder(self, keys: Sequence[str]) -> None:
        self._policy.reorder(keys)

    def contains(self, keys: Sequence[str], now: float) -> list[bool]:
        if not self.expiring:
            return list(map(self.entries.__contains__, keys))
        found = map(self.entries.get, keys)
        return [entry is not None and not _expired(entry, now) for entry in found]

    def remove(self, key: str) -> bool:
        """Make a blob unreadable now; its block returns with the last reference."""
        entry = self.entries.pop(key, None)
        if entry is None:
            return False
        entry.published = False
        self.expiring -= entry.expires_at > 0
        self._groups.discard(key)
        self._policy.remove(key)
        if entry.pinned:
            self.pinned_bytes -= entry.block
        if not entry.refs:
            self._free(entry)
        return True

    def watch(self, watcher: Watcher | None) -> list[str]:
        return self._groups.watch(watcher)

    def under(self, prefix: str) -> list[str]:
        return self._groups.under(prefix)

    def pin(self, key: str, pinned: bool) -> bool:
        """Pinned entries leave the eviction order; unpinned ones enter it as the most recent."""
        entry = self.entries.get(key)
        if entry is None:
            return False
        if entry.pinned != pinned:
            entry.pinned = pinned
            self.pinned_bytes += entry.block * (1 if pinned else -1)
            if pinned:
                self._policy.remove(key)
            else:
                self._policy.admit(key, entry.size, after=entry.after)
        return True

    def held_by(self, groups: Iterable[str]) -> int:
        """Bytes of blocks of all keys in some groups."""
        return sum(self._held.get(group, 0) for group in groups)

    def shrink(self, groups: Collection[str], wanted: int) -> int:
        """Evict the coldest blobs of some groups until `wanted` bytes are free; how many are. O(blobs)."""
        freed = 0
        for key in self._policy.victims(len(self.entries)):
            if freed >= wanted:
                break
            entry = self.entries[key]
            if not entry.refs and entry.group in groups:
                freed += entry.block
                self._evict(entry)
        return freed

    def _live(self, key: str, now: float) -> Entry | None:
        entry = self.entries.get(key)
        if entry is not None and _expired(entry, now):
            self.remove(key)
            return None
        return entry

    def _free(self, entry: Entry) -> None:
        del self._by_offset[entry.offset]
        self._held[entry.group] -= entry.block
        if not self._held[entry.group]:
            del self._held[entry.group]
        self.slabs.free(entry.offset)

    def _make_room(self, block: int) -> int | None:
        """A block that was freed by an eviction."""
        if block > self.slabs.capacity:
            return None
        if self._evict_same_size(block, 1):
            return self.slabs.allocate(block)
        self._pass_over_held()
        if self._evict_same_size(block, _COLDEST) or self._evict_slabs(block):
            return self.slabs.allocate(block)
        if self._evict_same_size(block, len(self.entries)):
            return self.slabs.allocate(block)
        return None

    def _evict_same_size(self, block: int, depth: int) -> bool:
        for key in self._policy.victims(depth):
            entry = self.entries[key]
            if not entry.refs and entry.block == block:
                self._evict(entry)
                return True
        return False

    def _pass_over_held(self) -> None:
        """Let what is held and would go next be the most recent, for it is in use.

        Pages that wait to be written to a slow tier become the coldest. To look through all of them
        for every new page, or to empty slabs around them, would stop the engine.
        """
        for _ in range(1 + self.refs // _COLDEST):
            victims = self._policy.victims(_COLDEST)
            held = [key for key in victims if self.entries[key].refs]
            self._policy.touch(held)
            if len(held) < len(victims) or not victims:
                return

    def _evict_slabs(self, block: int) -> bool:
        """Empty the slabs that lose the fewest bytes beside those of the coldest blobs."""
        cold = set(self._policy.victims(_COLDEST))
        run = self.slabs.cheapest_run(block, lambda offsets: self._cost(offsets, cold))
        for offsets in run:
            for entry in self._entries_at(offsets):
                self._evict(entry)
        return bool(run)

    def _cost(self, offsets: range, cold: set[str]) -> int:
        cost = 0
        for entry in self._entries_at(offsets):
            if entry.refs or entry.pinned:
                return IMPOSSIBLE
            cost += 0 if entry.key in cold else entry.size
        return cost

    def _entries_at(self, offsets: range) -> list[Entry]:
        found = map(self._by_offset.get, offsets)
        return [entry for entry in found if entry is not None]

    def _evict(self, entry: Entry) -> None:
        self.evicted_blobs += 1
        self.evicted_bytes += entry.block
        self.remove(entry.key)


def _expired(entry: Entry, now: float) -> bool:
    return 0 < entry.expires_at <= now
