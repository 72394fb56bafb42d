"""Lookups, in a thread of their own; and pages that are kept in memory until they are loaded."""

from __future__ import annotations

import queue
import threading

from sgkv.backends.cpu import Lease
from sgkv.backends.deadline import Deadline
from sgkv.backends.workers import WorkerPool
from sgkv.boundary import contained
from sgkv.counters import Counters
from sgkv.reasons import MissReason
from sgkv.store.pools import Need, PoolCover, leading, restorable
from sgkv.store.span import Span
from sgkv.vllm.connecting.messages import Answer, Lookup
from sgkv.vllm.connecting.shelves import Shelf, Shelves

_BACKLOG = 1024


class Held:
    """Leases of pages by request, for loads that cannot fail. Any thread."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` of the cpu tier may be kept from eviction."""
        self._most = most_bytes
        self._lock = threading.Lock()
        self._bytes = 0
        self._of: dict[str, dict[str, Lease]] = {}

    def keep(self, request: str, leases: dict[str, Lease], size: int) -> bool:
        """Take over leases, `size` bytes each, by page hash; False, and they are given back, for too many."""
        self.release(request)
        with self._lock:
            fits = self._bytes + size * len(leases) <= self._most
            if fits:
                self._of[request] = leases
                self._bytes += size * len(leases)
        if not fits:
            _release(leases)
        return fits

    def take(self, request: str) -> dict[str, Lease]:
        """Hand the leases over."""
        with self._lock:
            leases = self._of.pop(request, {})
            self._bytes -= sum(len(lease.view) for lease in leases.values())
        return leases

    def release(self, request: str) -> None:
        _release(self.take(request))

    def close(self) -> None:
        for request in list(self._of):
            self.release(request)


class Lookups:
    """Answers what the scheduler asks. Worker's main thread, but for `_find`."""

    def __init__(self, shelves: Shelves, counters: Counters, seconds: float, held: Held | None) -> None:
        """Each lookup ends after `seconds`. Pages in memory are kept for layer-wise loads in `held`."""
        self._shelves = shelves
        self._counters = counters
        self._seconds = seconds
        self._held = held
        self._worker = WorkerPool(1, "sgkv-connector-lookup", backlog=_BACKLOG)
        self._answers: queue.SimpleQueue[tuple[int, Answer]] = queue.SimpleQueue()

    def submit(self, lookup: Lookup) -> None:
        """Every lookup is answered, come what may."""

        def find() -> None:
            answer = Answer(0)
            with contained("a lookup", self._counters):
                answer = self._find(lookup)
            self._answers.put((lookup.number, answer))

        if self._worker.submit(find) is None:
            self._answers.put((lookup.number, Answer(0)))

    def forget(self, request: str) -> None:
        """Give back what is kept for a request, also by a lookup of it that is under way."""
        held = self._held
        if held is not None and self._worker.submit(lambda: held.release(request)) is None:
            held.release(request)

    def take(self) -> dict[int, Answer]:
        """Answers since the last time."""
        found = {}
        while not self._answers.empty():
            number, answer = self._answers.get()
            found[number] = answer
        return found

    def close(self, timeout: float) -> bool:
        return self._worker.close(timeout)

    def _find(self, lookup: Lookup) -> Answer:
        span, deadline = Span(lookup.hashes, lookup.before), Deadline(self._seconds)
        shelves = self._shelves.all
        if len(shelves) > 1:
            return Answer(self._common(span, shelves, deadline))
        found = shelves[0].session.lookup(span, deadline)
        self._counters.lookup(len(span.hashes), found.pages, found.reason)
        return self._hold(lookup.request, span.part(0, found.pages), shelves[0])

    def _common(self, span: Span, shelves: list[Shelf], deadline: Deadline) -> int:
        """The longest prefix that every group can restore."""
        lengths = set(range(1, len(span.hashes) + 1))
        for shelf in shelves:
            if lengths:
                lengths &= restorable(_cover(shelf, shelf.session.contains(span, deadline)))
        longest = max(lengths, default=0)
        reason = None if longest == len(span.hashes) else MissReason.ABSENT
        first = (span.before or span.hashes)[0]
        if longest and self._shelves.store.holds_back(first, longest * self._shelves.page_tokens):
            longest, reason = 0, MissReason.HELD_BACK
        self._counters.lookup(len(span.hashes), longest, reason)
        return longest

    def _hold(self, request: str, span: Span, shelf: Shelf) -> Answer:
        """Keep what is in memory, if that is all of it."""
        count = leading(shelf.session.near(span))
        if self._held is None or not count or count < len(span.hashes):
            return Answer(len(span.hashes), count)
        leases = dict(zip(span.hashes, shelf.session.lease(span), strict=True))
        kept = {page: lease for page, lease in leases.items() if lease is not None}
        if len(kept) < len(leases):  # some have been evicted meanwhile
            _release(kept)
            return Answer(count)
        return Answer(count, count, self._held.keep(request, kept, shelf.pages.page_bytes))


def _cover(shelf: Shelf, present: list[bool]) -> PoolCover:
    if not shelf.group.window:
        return PoolCover(Need.ALL, present)
    pages = -(-(shelf.group.window - 1) // shelf.session.layout.tokens)
    return PoolCover(Need.TRAILING, present, max(1, pages))


def _release(leases: dict[str, Lease]) -> None:
    for lease in leases.values():
        lease.release()
