"""How much of a chain a set of tiers can serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress

from sgkv.backends.base import Status
from sgkv.backends.deadline import Deadline
from sgkv.decide.gate import Reach
from sgkv.keys import chunk_keys, page_keys
from sgkv.reasons import DOWN, MissReason, reason_of
from sgkv.store.memo import ChunkMemo
from sgkv.store.pools import leading
from sgkv.store.span import ChunkSlice, Span
from sgkv.store.tier import Tier
from sgkv.store.together import Steps, together

_FANOUT = 20
"""Keys a round beside the first few: two rounds find the end of a run of 400, a third asks for its pages."""
_MAX_BRIDGES = 4
"""Chunks of a remote tier that may be missing but present as pages before the search stops."""


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a lookup."""

    pages: int
    """Leading pages of the span that can be read now."""
    reason: MissReason | None
    """Why the next page cannot; None when all can."""


Asking = Steps[str, bool, None]
"""Yields keys, to be sent whether a tier has each."""
Probe = Callable[[Sequence[str]], Steps[str, bool, list[bool]]]
Run = Callable[[Probe, Sequence[str]], Steps[str, bool, int]]
"""How many leading keys of a chain are there."""


@dataclass(slots=True)
class Search:
    """One lookup under way: which pages of the span some tier has."""

    span: Span
    namespace: str
    arena_namespace: str
    pages_per_chunk: int
    memo: ChunkMemo
    available: list[bool]
    reason: MissReason = MissReason.ABSENT
    down: bool = False
    """The tier being asked has not answered, and is not asked again in this lookup."""
    reaches: list[Reach] = field(default_factory=list)
    """How far the tiers asked so far get, each with those above it."""

    @property
    def found(self) -> Found:
        """The answer, as far as tiers have been asked."""
        if all(self.available):
            return Found(len(self.available), None)
        return Found(leading(self.available), self.reason)

    def ask(self, tier: Tier) -> Asking:
        """Look in one tier for what those above it have not."""
        self.down = False
        if tier.arena is not None:
            yield from self._ask_arena()
        elif tier.backend.capabilities.local_index:
            yield from self._ask_index()
        else:
            whole = tier.backend.capabilities.whole_chains
            yield from self._ask_remote(_whole_run if whole else _leading_run)
        self.reaches.append(Reach(tier.name, leading(self.available)))

    def troubled(self, status: Status) -> None:
        """The tier being asked says why every doubt of its last answer was False."""
        self.reason = reason_of(status)
        self.down = status in DOWN

    def _probe(self, keys: Sequence[str]) -> Steps[str, bool, list[bool]]:
        if not keys or self.down:
            return [False] * len(keys)
        return (yield keys)

    def _ask_arena(self) -> Asking:
        flags = yield from self._probe(page_keys(self.arena_namespace, self.span.hashes))
        self._add_pages(range(len(flags)), flags)

    def _ask_index(self) -> Asking:
        """A local index answers for every chunk, and for every page outside a present one."""
        wanted = [c for c in self.span.chunks(self.pages_per_chunk) if self._misses(c)]
        flags = yield from self._probe(chunk_keys(self.namespace, [c.last_hash for c in wanted]))
        for chunk in compress(wanted, flags):
            self._add_chunk(chunk)
        missing = [page for page, has in enumerate(self.available) if not has]
        yield from self._ask_pages(missing)

    def _ask_remote(self, leading_run: Run) -> Asking:
        """A remote tier is searched for its leading run, bridging chunks that exist as pages."""
        wanted = [c for c in self.span.chunks(self.pages_per_chunk) if self._misses(c)]
        keys = chunk_keys(self.namespace, [c.last_hash for c in wanted])
        for _ in range(_MAX_BRIDGES):
            run = yield from leading_run(self._probe, keys)
            for chunk in wanted[:run]:
                self._add_chunk(chunk)
            wanted, keys = wanted[run:], keys[run:]
            first = leading(self.available)
            stop = wanted[0].stop if wanted else len(self.available)
            yield from self._ask_pages([p for p in range(first, stop) if not self.available[p]])
            if not wanted or not all(self.available[:stop]):
                return
            wanted, keys = wanted[1:], keys[1:]

    def _ask_pages(self, pages: Sequence[int]) -> Asking:
        hashes = [self.span.hashes[page] for page in pages]
        flags = yield from self._probe(page_keys(self.namespace, hashes))
        self._add_pages(pages, flags)

    def _misses(self, chunk: ChunkSlice) -> bool:
        return not all(self.available[chunk.first : chunk.stop])

    def _add_pages(self, pages: Sequence[int], flags: Sequence[bool]) -> None:
        for page in compress(pages, flags):
            self.available[page] = True

    def _add_chunk(self, chunk: ChunkSlice) -> None:
        self.available[chunk.first : chunk.stop] = [True] * (chunk.stop - chunk.first)
        self.memo.remember(self.span.chunk_hashes(chunk))


def search_all(searches: Sequence[Search], tiers: Sequence[Tier], deadline: Deadline) -> None:
    """Ask the tiers in order until every search is complete, or the time is up."""
    for tier in tiers:
        left = [search for search in searches if not all(search.available)]
        late = bool(left) and deadline.over
        if late:
            for search in left:
                search.reason = MissReason.TIMEOUT
        if late or not left:
            return
        together([search.ask(tier) for search in left], partial(_probe, tier, left, deadline))


def _probe(tier: Tier, searches: Sequence[Search], deadline: Deadline, keys: Sequence[str]) -> list[bool]:
    flags, status = tier.backend.probe(keys, deadline)
    if status is not Status.OK:
        for search in searches:
            search.troubled(status)
    return flags


def leading_run(probe: Callable[[Sequence[str]], list[bool]], keys: Sequence[str]) -> int:
    """How many leading keys are present, given that a chain is stored parent first.

    Galloping, then a search with a fan-out: every round is one batched call, and 400 keys take at
    most two. Where the chain has holes the answer may be too long; the read then reports it.
    """
    return together([_leading_run(_asked, keys)], probe)[0]


def _asked(keys: Sequence[str]) -> Steps[str, bool, list[bool]]:
    return (yield keys)


def _whole_run(probe: Probe, keys: Sequence[str]) -> Steps[str, bool, int]:
    """As `_leading_run`, of a tier that is asked for all at once: holes are seen."""
    return leading((yield from probe(keys)))


def _first_round(total: int) -> list[int]:
    """Places close to each other where a chain begins, then evenly to its end, which most chains reach."""
    step = -(-total // _FANOUT)
    near = {2**power - 1 for power in range(step.bit_length())}
    return sorted({min(place, total - 1) for place in (*near, *range(step - 1, total + step - 1, step))})


def _leading_run(probe: Probe, keys: Sequence[str]) -> Steps[str, bool, int]:
    if not keys:
        return 0
    present, absent = 0, len(keys)
    round_ = _first_round(len(keys))
    while present < absent:
        flags = yield from probe([keys[index] for index in round_])
        for index, flag in zip(round_, flags, strict=True):
            if not flag:
                absent = index
                break
            present = index + 1
        step = max(1, -(-(absent - present) // _FANOUT))
        round_ = list(range(present + step - 1, absent, step)) or [present]
    return present
