"""A backend that takes only what is sealed already, for copying into a tier whose keys are not at hand."""

from __future__ import annotations

from collections.abc import Sequence

from sgkv.backends.base import Buffer, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.wrapper import Wrapper
from sgkv.chunk.header import HeaderError
from sgkv.codecs.envelope import decode_head, is_envelope, stated_size


class SealedOnly(Wrapper):
    """Puts of what is not sealed end as `Status.LOCKED`; everything else passes."""

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        sealed = [_is_sealed(item.buffers) for item in items]
        told = iter(
            self.inner.put([item for item, fine in zip(items, sealed, strict=True) if fine], deadline)
        )
        return [next(told) if fine else Status.LOCKED for fine in sealed]


def _is_sealed(buffers: Sequence[Buffer]) -> bool:
    """Of a blob in one buffer, as copies have it, or whose head is one."""
    if not buffers or not is_envelope(buffers[0]):
        return False
    try:
        head = decode_head(buffers[0][: stated_size(buffers[0])])
    except HeaderError:
        return False
    return bool(head.envelope.cipher)
