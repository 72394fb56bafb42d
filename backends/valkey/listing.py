"""The servers' own lists of keys."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from sgkv.backends.base import BlobInfo, Status
from sgkv.backends.remote.listing import Page
from sgkv.backends.valkey.dialling import Control
from sgkv.backends.valkey.exchange import Exchange
from sgkv.backends.valkey.names import Names
from sgkv.backends.valkey.requests import Ask
from sgkv.backends.valkey.topology import Topology, of_each
from sgkv.backends.workers import WorkerPool

_SCAN_COUNT = 1000
"""Keys a server looks at for one answer, of whatever prefix they are: it does nothing else meanwhile."""
_GLOB = re.compile(rb"[*?\[\]\\^-]")


class Keyspace:
    """SCAN, and UNLINK in rows. Any thread.

    SCAN gives every key that is there from beginning to end of it, perhaps twice; of those written or
    deleted meanwhile it may give some ("SCAN", valkey.io).
    """

    def __init__(
        self,
        topology: Topology,
        control: Control,
        exchange: Exchange,
        names: Names,
        pool: WorkerPool,
    ) -> None:
        """Removals of more than a row are carried by `pool`."""
        self._topology = topology
        self._control = control
        self._exchange = exchange
        self._names = names
        self._pool = pool

    def pages(self, prefix: str) -> Iterator[Page]:
        """Blobs whose key starts with `prefix`; blobs of no bytes are left out.

        Raises ConnectionError where a server does not answer to the end.
        """
        for address in of_each(self._topology):
            with self._control(address) as client:
                yield from self._scan(client, self._names.of(prefix))

    def remove(self, keys: Sequence[str]) -> None:
        """Remove blobs; memory is freed in the background. Raises ConnectionError where some may be left."""
        requests = [Ask(b"UNLINK", self._names.of(key)) for key in keys]
        statuses = self._exchange.run("delete", requests, self._pool, None)
        left = sum(status not in (Status.OK, Status.ABSENT) for status in statuses)
        if left:
            raise ConnectionError(f"{left} of {len(keys)} keys could not be removed")

    def _scan(self, client: Any, prefix: bytes) -> Iterator[Page]:
        cursor, pattern = 0, literal(prefix) + b"*"
        while True:
            cursor, names = client.scan(cursor, match=pattern, count=_SCAN_COUNT)
            if names:
                yield Page(self._sized(client, names), time.time())
            if not cursor:
                return

    def _sized(self, client: Any, names: Sequence[bytes]) -> list[BlobInfo]:
        pipeline = client.pipeline(transaction=False)
        for name in names:
            pipeline.strlen(name)
        sizes = pipeline.execute(raise_on_error=False)  # a key of another type is nobody's blob
        return [
            BlobInfo(self._names.key(name), size, 0.0)
            for name, size in zip(names, sizes, strict=True)
            if isinstance(size, int) and size
        ]


def literal(text: bytes) -> bytes:
    """A pattern that matches `text` and nothing else."""
    return _GLOB.sub(rb"\\\g<0>", text)
