"""The backend contract: opaque keys in, bytes in caller-owned buffers out.

`Backend` documents the rules every implementation keeps and `tests/backends/contract.py`
holds the same rules as tests.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from sgkv.backends.deadline import Deadline
from sgkv.backends.keygroups import Watcher

Buffer = memoryview
"""One contiguous run of bytes, format ``B``. Writable where a `get` fills it."""


class Status(enum.Enum):
    """What became of one item of a batch. Data conditions are statuses, never exceptions."""

    OK = "ok"
    EXISTS = "exists"
    """`put`: the key was there already and was left as it is. A success."""
    ABSENT = "absent"
    SHORT = "short"
    """`get`: the blob ends before a requested part does; the buffers are not usable."""
    CORRUPT = "corrupt"
    """`get`: the item's own `check` refused the bytes."""
    LOCKED = "locked"
    """A blob that may be whole, and that this reader has no key for, must not trust unsealed, or does not
    know the format of. It stays."""
    FULL = "full"
    """`put`: no room, and nothing that may be evicted."""
    TIMEOUT = "timeout"
    BREAKER_OPEN = "breaker_open"
    ERROR = "error"
    CLOSED = "closed"

    __hash__ = object.__hash__
    """By identity, as they compare: Enum's own is a Python function, and sets are asked for every blob."""

    @property
    def ok(self) -> bool:
        return self in _SUCCESS


_SUCCESS = frozenset({Status.OK, Status.EXISTS})


class Part(NamedTuple):
    """A run of a blob: bytes `[offset, offset + len(buffer))` belong into `buffer`."""

    offset: int
    buffer: Buffer


part_of = partial(tuple.__new__, Part)
"""A `Part` of a pair, past the function that a named tuple makes of itself: there is one for every buffer."""


@dataclass(slots=True)
class PutItem:
    """One blob to publish: its bytes are the concatenation of `buffers`."""

    key: str
    buffers: Sequence[Buffer]
    prepare: Callable[[], None] | None = None
    """Called in the backend's I/O thread right before `buffers` are read, e.g. to fill a header
    with checksums while the pages are on their way through the CPU cache. It is not called for a
    key that already exists. An exception in it makes the item `Status.ERROR`."""
    expires_at: int = 0
    """Unix seconds after which a backend may drop the blob; 0 is never. Readers still check."""
    after: str | None = None
    """Key of the blob that this one continues and is of no use without, for eviction; it may be absent."""

    @property
    def size(self) -> int:
        return sum(map(len, self.buffers))


@dataclass(slots=True)
class GetItem:
    """One blob to read, in whole or in parts. Parts are sorted by offset and do not overlap."""

    key: str
    parts: Sequence[Part]
    check: Callable[[], bool] | None = None
    """Called in the backend's I/O thread as soon as every part is filled, while the bytes are
    hot in cache. `False` (or an exception) turns the item into `Status.CORRUPT`."""
    progress: Callable[[int], None] | None = None
    """A backend that fills a large item in pieces may say so: called in the I/O thread with how many
    leading parts are filled by now, while the last of them are hot. 0 when it starts, or starts over.
    A backend may also call it never; it does not raise."""


class BlobInfo(NamedTuple):
    """One row of `scan`."""

    key: str
    size: int
    """Bytes of the blob."""
    modified: float
    """Unix seconds, 0.0 where unknown."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do, fixed for its lifetime."""

    local_index: bool = False
    """`contains` answers from memory in about a microsecond a key: ask it for whole chains."""
    whole_chains: bool = False
    """`contains` is remote, but takes hundreds of keys in one cheap round trip: ask it for whole chains."""
    persistent: bool = False
    """Blobs survive the process."""
    shared: bool = False
    """Other processes may publish into the same place."""
    pins: bool = False
    """`pin` is honoured by eviction."""
    abandonable: bool = False
    """Rule 8 is kept: after `Deadline.cancel` has returned nothing writes into the caller's
    buffers and nothing read from them later is published. `Guarded` copies the buffers of a
    backend that does not keep it."""


class Bound(NamedTuple):
    """How much of something limited is in use."""

    used: int
    limit: int


@dataclass(slots=True)
class BackendStats:
    """A snapshot of gauges and monotonic counters."""

    blobs: int = 0
    used_bytes: int = 0
    capacity_bytes: int = 0
    """0 means unbounded by us."""
    pinned_bytes: int = 0
    leases: int = 0
    """References held at this moment: leases, reservations, reads under way."""
    evicted_blobs: int = 0
    evicted_bytes: int = 0
    bounds: dict[str, Bound] = field(default_factory=dict)
    """Threads and queues. A thread of a disk tier has at most one blob open, so these bound the
    descriptors too."""
    counters: dict[str, int] = field(default_factory=dict)
    """Backend-specific monotonic counters, named like Prometheus metrics without prefix."""
    states: dict[str, int] = field(default_factory=dict)
    """Backend-specific gauges, such as the state of a breaker or bytes registered."""


class Backend(ABC):
    """A place for blobs.

    1. Every method may be called from any thread at any time. Blocking I/O releases the GIL and
       parallelism over a batch lives inside.
    2. Data conditions (absent, full, short, slow, broken) are statuses, one an item, in the order
       of the items. Only a programming error raises.
    3. `put` publishes atomically: a reader sees the whole blob or none of it, also after a crash
       of the writer. Putting a key that exists is a success and changes nothing.
    4. `contains` takes no lease and does not change the eviction order; on a remote backend it is
       one round trip for the whole batch.
    5. A `get` whose buffers were not filled completely is never `Status.OK`. What the buffers
       hold after any other status is undefined. No thread of the backend writes into them after
       `get` has returned.
    6. Bounded: a capacity that counts what an earlier process left behind, eviction under it, and
       `Status.FULL` when eviction finds nothing it may take.
    7. `close` drains and returns within seconds; afterwards calls answer `Status.CLOSED` or
       False. Nothing happens in `__del__`.
    8. A batch with a deadline returns when that is over, even where its threads still hang in a
       device. With `capabilities.abandonable` the caller's buffers are then the caller's again:
       `get` fills them, and `prepare` and `check` run, only inside `Deadline.landing`; a put looks
       at the deadline again after it has read the last buffer and publishes nothing if that is
       over, because what it read may have changed. It may go on reading until it notices, so
       memory handed to `put` stays mapped while a batch that timed out can still be under way.
    9. `delete_prefix` makes every blob under the prefix unreadable before it returns True, in
       constant time where the backend can; its space is reclaimed afterwards.
    """

    name: str
    capabilities: Capabilities

    @abstractmethod
    def contains(self, keys: Sequence[str]) -> list[bool]:
        """Whether each key could be read now. A doubt is False."""

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        """`contains`, and whether it could be asked at all: `Status.OK` or why every doubt is False.

        A wrapper that bounds calls answers within `deadline`; others need not look at it.
        """
        return self.contains(keys), Status.OK

    @abstractmethod
    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        """Publish blobs. The buffers are only read, and what they hold later is never published."""

    @abstractmethod
    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        """Fill the parts of each item; refreshes the eviction order of what was read."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> list[bool]:
        """Remove blobs; True where there was one."""

    @abstractmethod
    def delete_prefix(self, prefix: str) -> bool:
        """Make everything whose key starts with `prefix` (ends in ``/``) unreadable at once.

        False where that could not be done, or not in time: blobs may still be there.
        """

    @abstractmethod
    def scan(self, prefix: str = "") -> Iterator[BlobInfo]:
        """Iterate over blobs whose key starts with `prefix`, in no particular order.

        For people and tools, not for engines: a remote backend raises ConnectionError where it cannot
        list to the end, because a part would be taken for the whole.
        """

    @abstractmethod
    def stats(self) -> BackendStats:
        """Cheap enough for a scheduler thread: no I/O."""

    @abstractmethod
    def close(self) -> None:
        """Drain, release, and refuse what comes later. Idempotent."""

    def register_memory(self, view: Buffer) -> bool:
        """Say that puts will come from this memory, which then stays mapped until `close`.

        True where the backend can now take them without a copy.
        """
        return False

    def touch(self, keys: Sequence[str]) -> None:
        """Refresh the eviction order, which is no use: the last of `keys` becomes the most recent."""

    def pin(self, keys: Sequence[str], pinned: bool = True) -> list[bool]:
        """Exempt present blobs from eviction, or end that; True where it took effect.

        Pins are a set, not a count: pinning twice needs one unpin.
        """
        return [False] * len(keys)

    def watch(self, watcher: Watcher | None) -> list[str] | None:
        """Tell `watcher` of every key that comes or goes from now on, as far as this process knows.

        All keys of this moment; None where the backend keeps no index that could tell.
        """
        return None

    def quarantine(self, keys: Sequence[str]) -> None:
        """Take blobs that failed their check out of use; a backend may keep a few for inspection."""
        self.delete(keys)
