"""Into the pool by the library's sessions: begin, transfer, and publish only what the caller still wants.

The library's one-call puts report success for a key that exists, whatever it holds, and publish when
they please. Its sessions (`batch_put_session_*`) say so, and can be revoked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sgkv.backends.base import Buffer, PutItem, Status
from sgkv.backends.buffers import pieces
from sgkv.backends.cpu.copying import copy
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.hooks import prepared
from sgkv.backends.mooncake.adrift import Adrift
from sgkv.backends.mooncake.claims import Claims
from sgkv.backends.mooncake.client import Client, Connection
from sgkv.backends.mooncake.codes import OK, settled, start_status, unheard
from sgkv.backends.mooncake.keys import native_key
from sgkv.backends.mooncake.library import NativeStore
from sgkv.backends.mooncake.runs import Run, line_up
from sgkv.backends.mooncake.staging import SLOT_BYTES, Slot, Staging
from sgkv.backends.mooncake.standalone import write_whole
from sgkv.backends.workers import WorkerPool, spread_until

_GROUP_BYTES = 8 << 20
_GROUP_ITEMS = 16
"""A native call moves about so much: enough to hide its round trip, little enough to share out."""


class Writer:
    """Writes batches of distinct keys, in groups, in its own threads."""

    def __init__(self, client: Client, staging: Staging, pool: WorkerPool, *, sessions: bool) -> None:
        """`sessions` False is for a standalone client."""
        self._client = client
        self._sessions = sessions
        self._staging = staging
        self._pool = pool
        self._claims = Claims()
        self._adrift = Adrift()
        """To be revoked."""
        self._unheard = Adrift()
        """To be published, or published already: the master did not answer."""
        self._lock = threading.Lock()
        self._direct = self._copied = 0

    @property
    def moved(self) -> tuple[int, int]:
        """Bytes that went straight from registered memory, and bytes that were copied first."""
        with self._lock:
            return self._direct, self._copied

    def put(self, items: Sequence[PutItem], deadline: Deadline) -> list[Status]:
        statuses = [Status.TIMEOUT] * len(items)
        groups = list(_groups(items))

        def write(at: int) -> None:
            with self._claims.holding([items[i].key for i in groups[at]], deadline) as held:
                if held:
                    self._write(items, groups[at], statuses, deadline)

        spread_until(self._pool, len(groups), write, self._pool.threads, deadline)
        return list(statuses)

    def _write(
        self, items: Sequence[PutItem], group: Sequence[int], statuses: list[Status], deadline: Deadline
    ) -> None:
        with self._client.using() as connection:
            if connection is None:
                for at in group:
                    statuses[at] = self._client.why_not
                return
            if not self._sessions:
                for at in group:
                    statuses[at] = write_whole(connection, self._staging, items[at], deadline)
                return
            begun: dict[int, PutItem] = {}
            for at, status in self._begin(connection, items, group).items():
                statuses[at] = Status.TIMEOUT if status is Status.OK else status
                if status is Status.OK:
                    begun[at] = items[at]
            if begun:
                session = _Session(self._client, connection, self._staging, deadline)
                try:
                    results = session.write(begun)
                finally:
                    self._adrift.add(items[at].key for at in session.adrift)
                    self._unheard.add(items[at].key for at in session.unheard)
                    with self._lock:
                        self._direct += session.direct
                        self._copied += session.copied
                for at, status in results.items():
                    statuses[at] = status

    def _begin(
        self, connection: Connection, items: Sequence[PutItem], group: Sequence[int]
    ) -> dict[int, Status]:
        """Ask the pool for room; OK where there is some and the key is new."""
        self._end_old_sessions(connection.store)
        new = [at for at in group if items[at].key not in self._adrift and items[at].key not in self._unheard]
        if not new:
            return dict.fromkeys(group, Status.ERROR)
        keys, sizes = [native_key(items[at].key) for at in new], [items[at].size for at in new]
        codes = connection.store.batch_put_session_start(keys, sizes, connection.placement)
        found = dict(zip(new, map(start_status, codes), strict=True))
        return {at: found.get(at, Status.ERROR) for at in group}

    def _end_old_sessions(self, store: NativeStore) -> None:
        """Until it is ended, a session keeps its key from being put again."""
        if ready := self._unheard.settled():
            codes = store.batch_put_session_end([native_key(key) for key in ready])
            self._unheard.add(key for key, code in zip(ready, codes, strict=True) if unheard(code))
            self._adrift.add(
                key for key, code in zip(ready, codes, strict=True) if code != OK and not unheard(code)
            )
        if old := self._adrift.settled():
            codes = store.batch_put_session_revoke([native_key(key) for key in old])
            self._adrift.add(key for key, code in zip(old, codes, strict=True) if unheard(code))


@dataclass(slots=True)
class _Session:
    """Blobs that the pool has made room for, until they are published or revoked."""

    client: Client
    connection: Connection
    staging: Staging
    deadline: Deadline
    items: dict[int, PutItem] = field(default_factory=dict)
    runs: dict[int, list[Run]] = field(default_factory=dict)
    """By item, what the next native call moves."""
    left: dict[int, int] = field(default_factory=dict)
    """Bytes of each item that are not in the pool yet."""
    refused: set[int] = field(default_factory=set)
    """Items whose `prepare` failed."""
    adrift: set[int] = field(default_factory=set)
    """Items whose transfer failed and may go on, or which could not be revoked: the pool keeps their room."""
    unheard: set[int] = field(default_factory=set)
    """Complete items of which nobody knows whether they were published."""
    slot: Slot | None = None
    staged: int = 0
    """Bytes in the slot."""
    direct: int = 0
    copied: int = 0

    def write(self, items: dict[int, PutItem]) -> dict[int, Status]:
        self.items = items
        self.left = {at: item.size for at, item in items.items()}
        ended = False
        try:
            for at in items:
                self._add(at)
            self._transfer()
            ended = True
        finally:
            if self.slot is not None:
                self.staging.give(self.slot, settled=ended and not self.adrift)
        return self._conclude()

    def _add(self, at: int) -> None:
        """Prepare an item and line its bytes up; gives up on it where time is over."""
        with landing(self.deadline) as admitted:
            if admitted and not prepared(self.items[at]):
                self.refused.add(at)
        if not admitted or at in self.refused:
            return
        offset = 0
        for piece in pieces(self.items[at].buffers, SLOT_BYTES):
            address = self.client.locate(piece)
            if address is not None:
                self.direct += len(piece)
            elif (address := self._stage(piece)) is None:
                return
            line_up(self.runs.setdefault(at, []), Run(address, len(piece), offset))
            offset += len(piece)

    def _stage(self, piece: Buffer) -> int | None:
        """Copy what is not registered into the slot, emptying that first where it is full."""
        if self.slot is None:
            self.slot = self.staging.take(self.connection, self.deadline)
            if self.slot is None:
                return None
        if self.staged + len(piece) > SLOT_BYTES:
            self._transfer()
            if self.adrift:
                return None
        with landing(self.deadline) as admitted:
            if not admitted:
                return None
            start = self.staged
            copy(self.slot.view[start : start + len(piece)], piece)
        self.staged += len(piece)
        self.copied += len(piece)
        return self.slot.address + start

    def _transfer(self) -> None:
        """Move what is lined up."""
        runs, self.runs, self.staged = self.runs, {}, 0
        if not runs:
            return
        columns = [list(zip(*rows, strict=True)) for rows in runs.values()]
        codes = self.connection.store.batch_put_from_multi_buffer_ranges(
            [native_key(self.items[at].key) for at in runs],
            [list(addresses) for addresses, _, _ in columns],
            [list(sizes) for _, sizes, _ in columns],
            [list(offsets) for _, _, offsets in columns],
        )
        for (at, rows), code in zip(runs.items(), codes, strict=True):
            size = sum(row.size for row in rows)
            if code == size:
                self.left[at] -= size
            elif not settled(code):
                self.adrift.add(at)

    def _conclude(self) -> dict[int, Status]:
        """Publish what is complete and still wanted; the buffers may have changed when time is over."""
        late = self.deadline.over
        complete = [at for at in self.items if not self.left[at] and not late]
        revoked = [at for at in self.items if at not in complete and at not in self.adrift]
        statuses = dict.fromkeys(self.items, Status.TIMEOUT if late else Status.ERROR)
        store = self.connection.store
        if revoked:
            codes = store.batch_put_session_revoke([native_key(self.items[at].key) for at in revoked])
            self.adrift |= {at for at, code in zip(revoked, codes, strict=True) if unheard(code)}
        if complete:
            codes = store.batch_put_session_end([native_key(self.items[at].key) for at in complete])
            published = list(zip(complete, codes, strict=True))
            statuses |= {at: Status.OK if code == OK else Status.ERROR for at, code in published}
            self.unheard |= {at for at, code in published if unheard(code)}
        return statuses | dict.fromkeys(self.refused, Status.ERROR)


def _groups(items: Sequence[PutItem]) -> Iterator[list[int]]:
    """Positions of items that travel together."""
    group: list[int] = []
    size = 0
    for at, item in enumerate(items):
        if group and (size + item.size > _GROUP_BYTES or len(group) == _GROUP_ITEMS):
            yield group
            group, size = [], 0
        group.append(at)
        size += item.size
    if group:
        yield group
