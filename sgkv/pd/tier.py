"""A backend at either end of a channel: what it holds is sent, and what arrives is found there."""

from __future__ import annotations

from collections.abc import Sequence

from sgkv.backends.base import Backend, BlobInfo, GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.pd.sender import Sender
from sgkv.pd.session import Take
from sgkv.pd.window import Outcome

_TOGETHER = 8
"""Blobs in memory at a time."""


def taking_into(backend: Backend, seconds: float = 5.0) -> Take:
    """A `take` for a receiver that puts chunks into `backend`, each within `seconds`.

    True also for a chunk that was there already. The backend must stay open longer than the receiver.
    """

    def take(key: str, blob: memoryview) -> bool:
        return backend.put([PutItem(key, [blob])], Deadline(seconds))[0].ok

    return take


def push(backend: Backend, blobs: Sequence[BlobInfo], sender: Sender, deadline: Deadline) -> list[Outcome]:
    """Send blobs that `backend` holds, in this order: a chain's first chunk first."""
    outcomes: list[Outcome] = []
    for at in range(0, len(blobs), _TOGETHER):
        outcomes += _push_some(backend, blobs[at : at + _TOGETHER], sender, deadline)
    return outcomes


def _push_some(
    backend: Backend, blobs: Sequence[BlobInfo], sender: Sender, deadline: Deadline
) -> list[Outcome]:
    buffers = [memoryview(bytearray(blob.size)) for blob in blobs]
    wanted = [GetItem(blob.key, [Part(0, buffer)]) for blob, buffer in zip(blobs, buffers, strict=True)]
    # A deadline of the read's own: one that a slow tier used up is cancelled, and nothing could be sent.
    statuses = backend.get(wanted, Deadline(deadline.remaining()))
    rows = list(zip(blobs, buffers, statuses, strict=True))
    sent = sender.send_all(
        [PutItem(blob.key, [buffer]) for blob, buffer, status in rows if status is Status.OK], deadline
    )
    told = iter(sent)
    return [
        next(told) if status is Status.OK else Outcome(False, f"it cannot be read: {status.value}")
        for _, _, status in rows
    ]
