"""Whole chunks between a device pool and the tiers of a store, through a ring of staging buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from sgkv.backends.deadline import Deadline
from sgkv.reasons import MissReason
from sgkv.store.base import PageSession
from sgkv.store.span import Span
from sgkv.transfer.pages import DevicePages
from sgkv.transfer.staging import Event, Ring, StagingBuffer


class SlotError(Exception):
    """Slots out of range, which only the device could see. From then on the pool is not trusted."""


def fetch(
    session: PageSession, span: Span, pages: DevicePages, slots: torch.Tensor, ring: Ring, deadline: Deadline
) -> MissReason | None:
    """Read pages, verify them, and fill `slots`; why it could not be done, or None.

    One buffer is read into while the one before is on its way to the device. Pages are checked before
    they are sent, so nothing unverified reaches the device; after a miss some slots may be filled. What
    was sent has arrived when this ends, however it does. Raises SlotError as `save`.
    """
    try:
        for part in _batches(span, pages, ring, session.pages_per_chunk):
            buffer = ring.next()
            views = _views(buffer, pages, len(part))
            reasons = session.get(span.part(part.start, part.stop), views, deadline)
            reason = next(filter(None, reasons), None)
            if reason is not None:
                return reason
            unpack = partial(pages.unpack, _slots(slots, pages, part))
            ring.to_device(buffer, len(part) * pages.page_bytes, unpack, pages.rejected)
    finally:
        ring.drain()
    for buffer in ring.buffers:
        _require_all_slots(buffer)
    return None


def save(
    session: PageSession,
    span: Span,
    pages: DevicePages,
    slots: torch.Tensor,
    ring: Ring,
    deadline: Callable[[], Deadline],
    valid: Callable[[], bool] = lambda: True,
) -> int:
    """Store the pages at `slots`; how many are stored then, counted from the first.

    One buffer is packed and fetched while the one before goes to the store; each batch has a `deadline`
    of its own. Stops after a batch of which the store did not take everything, and where the pages are not
    `valid` any more. Raises SlotError once the device has met slots that are not there: in what was packed
    older bytes stand in their places, which must not be stored.
    """
    stored = 0
    waiting: tuple[range, StagingBuffer, Event] | None = None
    for part in [*_batches(span, pages, ring, session.pages_per_chunk), None]:
        upcoming = None
        if part is not None:
            if not valid():
                break
            buffer = ring.next()
            pack = partial(pages.pack, _slots(slots, pages, part))
            upcoming = part, buffer, ring.to_host(buffer, len(part) * pages.page_bytes, pack, pages.rejected)
        if waiting is not None:
            taken = _store(session, span, pages, *waiting, deadline())
            stored += taken
            if taken < len(waiting[0]):
                break
        waiting = upcoming
    ring.drain()
    return stored


def _store(
    session: PageSession, span: Span, pages: DevicePages, part: range, buffer: StagingBuffer, event: Event,
    deadline: Deadline,
) -> int:  # fmt: skip
    event.synchronize()
    _require_all_slots(buffer)
    flags = session.set(span.part(part.start, part.stop), _views(buffer, pages, len(part)), deadline)
    return next((at for at, flag in enumerate(flags) if not flag), len(flags))


def _require_all_slots(buffer: StagingBuffer) -> None:
    passed_over = int(buffer.rejected[0])  # host memory, after its event
    if passed_over:
        raise SlotError(f"the engine named {passed_over} slots that its pool does not have")


def _batches(span: Span, pages: DevicePages, ring: Ring, pages_per_chunk: int) -> Iterator[range]:
    """Pages that fit a buffer, cut where chunks end, so that no chunk is read or written twice."""
    room = ring.buffer_bytes // pages.page_bytes
    if room < 1:
        raise ValueError(f"a page of {pages.page_bytes} bytes does not fit {ring.buffer_bytes}")
    return span.batches(room, pages_per_chunk)


def _views(buffer: StagingBuffer, pages: DevicePages, count: int) -> Sequence[Sequence[memoryview]]:
    size = pages.page_bytes
    return [[buffer.view[at * size : (at + 1) * size]] for at in range(count)]


def _slots(slots: torch.Tensor, pages: DevicePages, part: range) -> torch.Tensor:
    return slots[part.start * pages.page_size : part.stop * pages.page_size]
