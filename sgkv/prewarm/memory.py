"""Filling the cpu tier of the process one is in, before its engine takes traffic.

A cpu tier is memory of the server's own process, so that no command can fill it from outside: whoever
holds the tier calls this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sgkv.backends.base import Backend, BlobInfo, PutItem, Status
from sgkv.chunk.convert import convert_page
from sgkv.chunk.header import Header
from sgkv.chunk.layout import PageLayout
from sgkv.keys import page_keys
from sgkv.prewarm.amounts import within
from sgkv.prewarm.fetching import Fetcher
from sgkv.prewarm.outcomes import Outcome
from sgkv.prewarm.planning import by_namespace
from sgkv.prewarm.running import Buffers, Run, Verdict
from sgkv.prewarm.selection import Selection, listed


@dataclass(frozen=True, slots=True)
class Memory:
    """A cpu tier, and what one session of the store keeps in it."""

    tier: Backend
    namespace: str
    """Digest of the session's namespace."""
    layout: PageLayout
    """Of the session's pages; stored pages in another byte order are converted."""


def fill_memory(source: Backend, memory: Memory, run: Run, *, max_bytes: int | None = None) -> None:
    """Copy the pages of the session's namespace that were used last into memory; `run` counts.

    No more than the tier holds, and no more than `max_bytes`. Raises UnavailableError.
    """
    run.listener.prepare("listing")
    everything = listed(source, Selection(frozenset({memory.namespace})), lambda: run.control.stopped)
    capacity = memory.tier.stats().capacity_bytes
    hottest_first = everything[::-1]
    room = capacity if max_bytes is None else min(capacity, max_bytes)
    chosen = hottest_first[: within(hottest_first, room)]
    run.note_copy(source.name, memory.tier.name, by_namespace(everything))
    keeper = Keeper(Fetcher(source, run.control, Buffers()), memory)
    # The coldest first, and of a sequence its tail: memory evicts in the order in which it was filled.
    run.over("filling memory", chosen[::-1], lambda blob: blob.key, keeper.keep)


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps the pages of one blob a call; any thread."""

    fetcher: Fetcher
    memory: Memory

    def keep(self, blob: BlobInfo) -> Verdict:
        """Read, verify, and put page by page, children before their parents."""
        fetched = self.fetcher.fetch(blob)
        if fetched.outcome is not Outcome.GOOD or fetched.header is None:
            return Verdict(fetched.outcome, fetched.why)
        if not fetched.header.layout.converts_to(self.memory.layout):
            return Verdict(Outcome.FOREIGN, "pages of another shape than the engine's")
        statuses = self.memory.tier.put(list(self._items(fetched.header, fetched.raw)))
        if Status.OK in statuses:
            return Verdict(Outcome.COPIED)
        if all(status.ok for status in statuses):
            return Verdict(Outcome.PRESENT)
        return Verdict(Outcome.FAILED, f"cannot be kept: {statuses[0].value}")

    def _items(self, header: Header, raw: memoryview) -> Iterator[PutItem]:
        layout = header.layout
        start = len(raw) - header.pages * layout.page_bytes
        arena = f"{self.memory.namespace}.{self.memory.layout.order.value}"
        for page in reversed(range(header.pages)):
            name = header.hash_of(page).hex()
            body = raw[start + page * layout.page_bytes :][: layout.page_bytes]
            if layout.order is not self.memory.layout.order:
                body = memoryview(convert_page(body, layout, self.memory.layout))
            (key,) = page_keys(arena, [name])
            yield PutItem(key, [body], expires_at=header.expires_at)
