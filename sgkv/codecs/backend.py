"""A backend whose blobs are coded: smaller, or sealed; whoever uses it sees chunk blobs."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sgkv.backends.base import Backend, BackendStats, GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.hooks import prepared
from sgkv.backends.workers import WorkerPool, spread_within
from sgkv.backends.wrapper import Wrapper
from sgkv.chunk.header import BLOCK, HeaderError, UnknownFormatError
from sgkv.codecs.coding import Reader, Recipe, Writer
from sgkv.codecs.envelope import Head, decode_head, is_envelope, stated_size
from sgkv.codecs.errors import CodecError, LockedError
from sgkv.codecs.locksmith import Locksmith
from sgkv.codecs.opening import Opening

log = logging.getLogger(__name__)

_SCRATCH_BYTES = 64 << 20
"""Bytes of a batch that are coded, or stored and not yet opened, at a time; one blob at least."""
_LARGEST_HEAD = 1 << 20
"""Of tens of thousands of pages."""
_SUSPECT = frozenset({Status.SHORT, Status.CORRUPT})
"""What the read of a coded blob ends as where a chunk blob was expected."""
_CLOSE_SECONDS = 2.0


class CodedBackend(Wrapper):
    """Codes what is written to `inner` by a recipe, and opens whatever envelope it reads there.

    Without a recipe it writes chunk blobs as they are, which then move without a copy, and still reads what
    others have coded. With one it reads both, unless everything must be sealed: then a blob that is not is
    `Status.LOCKED`, like one whose key nobody here has. Blobs other than chunk blobs pass uncoded, but are
    not written where everything is sealed.

    Between the guard and the backend: the guard's deadline is kept as rule 8 has it.
    """

    def __init__(
        self,
        inner: Backend,
        recipe: Recipe | None = None,
        *,
        keys: Locksmith | None = None,
        sealed_only: bool = False,
        threads: int = 2,
    ) -> None:
        """`threads` code and open pages. `keys` open what others have sealed; a recipe has its own.

        `sealed_only` needs a recipe with keys.
        """
        super().__init__(inner)
        self._locksmith = (recipe.locksmith if recipe else None) or keys
        self._seals = recipe is not None and recipe.locksmith is not None
        if sealed_only and not self._seals:
            raise ValueError("sealed_only needs a recipe with keys: it could read nothing")
        self._writer = Writer(recipe, self._measured) if recipe else None
        self._sealed_only = sealed_only
        self._pool = WorkerPool(threads, f"sgkv-{inner.name}-codec", backlog=8 * threads)
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        self._said: set[str] = set()

    @property
    def codes(self) -> bool:
        """Whether what is put is coded; else only what others have coded is opened."""
        return self._writer is not None

    @property
    def opens_with(self) -> Locksmith | None:
        """What opens sealed blobs here."""
        return self._locksmith

    @property
    def seals_with(self) -> Locksmith | None:
        """What blobs are sealed with; None where they are not."""
        return self._locksmith if self._seals else None

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        if self._writer is None:
            return self.inner.put(items, deadline)
        statuses = self._present(items)
        left = [at for at, status in enumerate(statuses) if status is not Status.EXISTS]
        for group in _groups(left, lambda at: items[at].size):
            made = self._coded([items[at] for at in group], deadline)
            told = self._hand_over(made, deadline)
            for at, status in zip(group, told, strict=True):
                statuses[at] = status
        return statuses

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        if self._writer is None:
            statuses = self.inner.get(items, deadline)
            suspects = [at for at, status in enumerate(statuses) if status in _SUSPECT]
            self._open(items, suspects, statuses, deadline, otherwise=None)
            return statuses
        statuses = [Status.TIMEOUT] * len(items)
        plain = self._open(items, range(len(items)), statuses, deadline, otherwise=Status.LOCKED)
        if plain and not self._sealed_only:
            read = self.inner.get([items[at] for at in plain], deadline)
            for at, status in zip(plain, read, strict=True):
                statuses[at] = status
        return statuses

    def stats(self) -> BackendStats:
        stats = self.inner.stats()
        with self._lock:
            counters = {f"coded_{name}": count for name, count in self._counters.items()}
        return replace(
            stats,
            counters={**stats.counters, **counters},
            bounds={**stats.bounds, **self._pool.bounds("codec")},
        )

    def close(self) -> None:
        self.inner.close()
        self._pool.close(_CLOSE_SECONDS)
        if self._locksmith is not None:
            self._locksmith.close()

    def _present(self, items: Sequence[PutItem]) -> list[Status]:
        """EXISTS for what need not be coded, where that costs nothing to know."""
        if not self.inner.capabilities.local_index:
            return [Status.TIMEOUT] * len(items)
        there = self.inner.contains([item.key for item in items])
        return [Status.EXISTS if found else Status.TIMEOUT for found in there]

    def _coded(self, items: Sequence[PutItem], deadline: Deadline | None) -> list[PutItem | Status]:
        """The items as they are to be stored; a status for those that are not."""
        made: list[PutItem | Status] = [Status.TIMEOUT] * len(items)

        def code(at: int) -> None:
            made[at] = self._code(items[at])

        spread_within(self._pool, len(items), code, self._pool.threads, deadline)
        # What was read of the caller's buffers after the deadline may have changed.
        late = deadline is not None and deadline.over
        return [Status.TIMEOUT] * len(items) if late else list(made)

    def _code(self, item: PutItem) -> PutItem | Status:
        assert self._writer is not None  # as its callers know
        if not prepared(item):
            return Status.ERROR
        try:
            coded = self._writer.code(item)
        except HeaderError as error:
            if self._seals:
                return self._failed(Status.ERROR, f"nothing is written that cannot be sealed: {error}")
            return replace(item, prepare=None)
        except LockedError as error:
            return self._failed(Status.LOCKED, f"nothing is written: {error}")
        except OSError as error:
            return self._failed(Status.ERROR, f"nothing is written: {error}")
        self._count(raw_bytes=item.size, stored_bytes=coded.size)
        return coded

    def _hand_over(self, made: Sequence[PutItem | Status], deadline: Deadline | None) -> list[Status]:
        ready = [item for item in made if isinstance(item, PutItem)]
        told = iter(self.inner.put(ready, deadline) if ready else [])
        return [item if isinstance(item, Status) else next(told) for item in made]

    def _open(
        self,
        items: Sequence[GetItem],
        which: Sequence[int],
        statuses: list[Status],
        deadline: Deadline | None,
        *,
        otherwise: Status | None,
    ) -> list[int]:
        """Read those that are envelopes, and note how that ended; which of them are none.

        What is none is noted as `otherwise`, or left as it is.
        """
        heads = self._heads([items[at].key for at in which], deadline) if which else []
        none, openings = [], dict[int, Opening]()
        for at, head in zip(which, heads, strict=True):
            if head is None or (head is Status.SHORT and not self._sealed_only):
                none.append(at)
                statuses[at] = otherwise or statuses[at]
            elif isinstance(head, Status):
                statuses[at] = head
            else:
                opened = self._opening(items[at], head)
                if isinstance(opened, Opening):
                    openings[at] = opened
                else:
                    statuses[at] = opened
        for group in _groups(list(openings), lambda at: openings[at].size):
            self._finish({at: openings[at] for at in group}, statuses, deadline)
        return none

    def _opening(self, item: GetItem, head: Head) -> Opening | Status:
        try:
            opening = Opening(item, Reader.of(item.key, head, self._locksmith))
        except (LockedError, CodecError) as error:
            return self._failed(Status.LOCKED, f"blobs are not read: {error}")
        except OSError as error:
            return self._failed(Status.ERROR, f"blobs are not read: {error}")
        if self._sealed_only and not head.envelope.cipher:
            return self._failed(Status.LOCKED, "blobs are not read: they are not sealed, and must be here")
        return opening if opening.fits() else Status.SHORT

    def _finish(
        self, openings: Mapping[int, Opening], statuses: list[Status], deadline: Deadline | None
    ) -> None:
        read = self.inner.get([opening.request() for opening in openings.values()], deadline)
        for at, status in zip(openings, read, strict=True):
            statuses[at] = status
        ready = [at for at in openings if statuses[at] is Status.OK]
        outcomes = [Status.TIMEOUT] * len(ready)

        def finish(nth: int) -> None:
            outcomes[nth] = openings[ready[nth]].finish(deadline)

        spread_within(self._pool, len(ready), finish, self._pool.threads, deadline)
        for at, status in zip(ready, list(outcomes), strict=True):
            statuses[at] = status

    def _heads(self, keys: Sequence[str], deadline: Deadline | None) -> list[Head | Status | None]:
        """The head of each blob; None for a blob without one, SHORT for one that no head fits in."""
        found = self._read_starts(keys, [BLOCK] * len(keys), deadline)
        heads = [_head(start) for start in found]
        large = [at for at, head in enumerate(heads) if isinstance(head, int)]
        if large:
            sizes = [head for head in heads if isinstance(head, int)]
            again = self._read_starts([keys[at] for at in large], sizes, deadline)
            for at, start in zip(large, again, strict=True):
                heads[at] = _head(start)
        return [Status.CORRUPT if isinstance(head, int) else head for head in heads]

    def _read_starts(
        self, keys: Sequence[str], sizes: Sequence[int], deadline: Deadline | None
    ) -> list[memoryview | Status]:
        starts = [memoryview(bytearray(size)) for size in sizes]
        items = [GetItem(key, [Part(0, start)]) for key, start in zip(keys, starts, strict=True)]
        statuses = self.inner.get(items, deadline)
        return [start if status.ok else status for start, status in zip(starts, statuses, strict=True)]

    def _failed(self, status: Status, why: str) -> Status:
        with self._lock:
            self._counters[status.value] += 1
            new = why not in self._said and len(self._said) < 100
            if new:
                self._said.add(why)
        if new:
            log.warning("%s: %s (said once)", self.name, why)
        return status

    def _measured(self, error: float) -> None:
        """The mean error of quantized blobs is the quotient of the two."""
        self._count(quantized_blobs=1, quantized_error_ppm=round(min(error, 1e3) * 1e6))

    def _count(self, **amounts: int) -> None:
        with self._lock:
            self._counters.update(amounts)


def _head(start: memoryview | Status) -> Head | Status | int | None:
    """The head that a blob begins with; its size, where `start` ends before; None where there is none."""
    if isinstance(start, Status):
        return start
    if not is_envelope(start):
        return None
    try:
        size = stated_size(start)
        if size > len(start) and len(start) == BLOCK:
            return size if size <= _LARGEST_HEAD else Status.CORRUPT
        return decode_head(start[:size])
    except UnknownFormatError:
        return Status.LOCKED
    except HeaderError:
        return Status.CORRUPT


def _groups(which: Sequence[int], size: Callable[[int], int]) -> Iterator[list[int]]:
    """Runs of `which` that are together no larger than `_SCRATCH_BYTES`, or are one."""
    group: list[int] = []
    total = 0
    for at in which:
        if group and total + size(at) > _SCRATCH_BYTES:
            yield group
            group, total = [], 0
        group.append(at)
        total += size(at)
    if group:
        yield group
