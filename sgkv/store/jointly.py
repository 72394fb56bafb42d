"""What sessions of one store do, for several of them at once: each tier is asked in the same calls.

The sessions are of equal pages of one sequence, in namespaces of their own. With one session this is all
that its own methods do.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sgkv.backends.deadline import Deadline
from sgkv.chunk.blob import Page
from sgkv.reasons import MissReason
from sgkv.store.lookup import Search, search_all
from sgkv.store.reading import Reading, read_all
from sgkv.store.span import Span
from sgkv.store.tier import Tier
from sgkv.store.writing import write_all, write_through

if TYPE_CHECKING:
    from sgkv.store.session import Session


def search_each(sessions: Sequence[Session], span: Span, deadline: Deadline) -> list[Search]:
    """Which pages of the span each session's tiers have."""
    searches = [session.search(span) for session in sessions]
    search_all(searches, _readable(sessions), deadline)
    return searches


def read_each(
    sessions: Sequence[Session], span: Span, pages: Sequence[Sequence[Page]], deadline: Deadline
) -> list[Reading]:
    """Fill the pages of each session. A page counts as one, served by the slowest of its tiers."""
    readings = [session.reading(span, own) for session, own in zip(sessions, pages, strict=True)]
    tiers, began = _readable(sessions), time.perf_counter()
    read_all(readings, tiers, deadline)
    served_by, reasons = _pages(readings, tiers)
    page_bytes = sum(session.layout.page_bytes for session in sessions)
    seconds = time.perf_counter() - began
    sessions[0].note(served_by, page_bytes, reasons, seconds)
    sessions[0].judge(span, page_bytes, reasons, seconds)
    for session, reading in zip(sessions, readings, strict=True):
        session.promote(reading)
    return readings


def write_each(
    sessions: Sequence[Session], span: Span, pages: Sequence[Sequence[Page]], deadline: Deadline
) -> list[list[bool]]:
    """Store the pages of each session; which of them are stored then, or were already.

    With an arena tier the bytes are copied there and written to the lower tiers afterwards; a
    page whose chunk is not complete is held for a moment, for the rest to arrive.
    """
    for session in sessions:
        session.retry_clearing()
        session.note_members(span)
    arena, both = sessions[0].arena, list(zip(sessions, pages, strict=True))
    if arena is not None:
        works = [session.through_arena(arena, span, own) for session, own in both]
        return write_through(works, arena, deadline)
    writes = [session.direct(span, own) for session, own in both]
    write_all(writes, _readable(sessions), deadline)
    return [write.stored for write in writes]


def _readable(sessions: Sequence[Session]) -> Sequence[Tier]:
    """The tiers that hold nothing of any session which was to be cleared."""
    first, *others = [session.cleared_tiers for session in sessions]
    return [tier for tier in first if all(tier in tiers for tiers in others)] if others else first


def _pages(
    readings: Sequence[Reading], tiers: Sequence[Tier]
) -> tuple[Mapping[str, int], Sequence[MissReason | None]]:
    """(pages by the tier that served them, for each page why it is a miss)."""
    if len(readings) == 1:
        return readings[0].served_by, readings[0].reasons
    reasons = [
        next(filter(None, each), None) for each in zip(*(one.reasons for one in readings), strict=True)
    ]
    slowness = {id(tier): place for place, tier in enumerate(tiers)}
    served = Counter(
        max((slowness[id(tier)] for tier in sources if tier is not None), default=0)
        for reason, sources in zip(reasons, zip(*(one.sources for one in readings), strict=True), strict=True)
        if reason is None
    )
    return {tiers[place].name: pages for place, pages in served.items()}, reasons
