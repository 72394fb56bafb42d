"""A backend at the end of a channel, such as a cpu tier: what arrives is found there from then on."""

from __future__ import annotations

from sgkv.backends.base import Backend, PutItem
from sgkv.backends.deadline import Deadline
from sgkv.pd.session import Take


def taking_into(backend: Backend, seconds: float = 5.0) -> Take:
    """A `take` for a receiver that puts chunks into `backend`, each within `seconds`.

    True also for a chunk that was there already. The backend must stay open longer than the receiver.
    """

    def take(key: str, blob: memoryview) -> bool:
        return backend.put([PutItem(key, [blob])], Deadline(seconds))[0].ok

    return take
