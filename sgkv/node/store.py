"""A store that is in the node's daemon. Stands where `sgkv.store.store.Store` does."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sgkv.backends.base import Buffer
from sgkv.backends.cpu.copying import address_of
from sgkv.backends.deadline import Deadline
from sgkv.chunk.layout import PageLayout
from sgkv.counters import Counters
from sgkv.identity import Namespace
from sgkv.node import wire
from sgkv.node.lane import SharedRegion
from sgkv.node.link import Link
from sgkv.node.session import AttachedSession
from sgkv.reasons import MissReason
from sgkv.store.base import PageStore, StoreStats

_ANSWER_SECONDS = 1.0


class AttachedStore(PageStore):
    """Any thread. Made in an instant, whether the daemon is there or not."""

    def __init__(
        self,
        path: Path,
        *,
        token: str = "",
        chunk_tokens: int = 256,
        retry: float = 2.0,
        fence: float = 1.0,
        counters: Counters | None = None,
    ) -> None:
        """`path` is the daemon's socket. The daemon refuses sessions of other `chunk_tokens` than its own."""
        self.counters = counters or Counters()
        self._chunk_tokens = chunk_tokens
        self._fence = fence
        self._link = Link(path, token, retry, self.counters)
        self._regions: dict[int, SharedRegion] = {}

    @property
    def shared(self) -> bool:
        return True

    @property
    def away(self) -> bool:
        """Whether the daemon was not to be reached when it was last needed."""
        return self._link.away

    def open(self, namespace: Namespace, layout: PageLayout, producer: str = "") -> AttachedSession:
        return AttachedSession(
            self._link, self._regions, self.counters, self._chunk_tokens, self._fence,
            namespace=namespace, layout=layout, producer=producer,
        )  # fmt: skip

    def register_memory(self, view: Buffer, descriptor: int | None = None) -> None:
        """With a descriptor, the daemon will read and write pages in this memory itself."""
        if descriptor is None or os.fstat(descriptor).st_size < len(view):
            return
        before = self._regions.get(id(view.obj))
        self._regions[id(view.obj)] = SharedRegion(view, address_of(view), descriptor)
        if before is not None:
            before.close()

    def flush(self, timeout: float) -> bool:
        ends = time.monotonic() + timeout
        answer = self._link.call(
            lambda lane, until: lane.ask(
                wire.Flush(max(0.0, ends - time.monotonic())), wire.Done, until + _ANSWER_SECONDS
            ),
            Deadline(timeout),
        )
        return not isinstance(answer, MissReason) and answer.ok

    def stats(self) -> StoreStats:
        """What this engine has counted; the daemon's tiers are in its own metrics."""
        return StoreStats({}, self.counters.snapshot(), 0, 0, self._link.bounds())

    def close(self) -> None:
        """Leave the daemon, which keeps what was stored."""
        self._link.close()
        while self._regions:
            self._regions.popitem()[1].close()
