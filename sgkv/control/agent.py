"""Beside a store: reports what it holds to the controller, and follows what that says.

Of no concern to engines: the store's tiers append to a bounded journal, and everything else happens in
two threads of the agent's own. With the controller away the journal fills and is given up; once it is
back, it gets a full account.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from itertools import chain

import httpx
import msgspec

from sgkv.boundary import contained
from sgkv.config.control import EngineEvents, Publishing
from sgkv.control.doing import device_of
from sgkv.control.engine import Engine
from sgkv.control.journal import Event, Journal, account, batches, changes
from sgkv.control.publishing import Publisher, events
from sgkv.control.table import HASH_BYTES
from sgkv.control.wire import MEDIA_TYPE, MOST_HASHES, Ack, Change, NamespaceFacts, Report
from sgkv.control.worker import Worker
from sgkv.store.members import ChunkMembers
from sgkv.store.session import Session
from sgkv.store.store import Store

logger = logging.getLogger("sgkv")

_JOURNAL = 200_000
"""Events, of some 200 bytes each."""
_REPORTS = 32
"""In a row, before the agent pauses."""
_CLOSE_SECONDS = 1.0
_ack = msgspec.msgpack.Decoder(Ack)


class Agent:
    """Started by its constructor, ended by `close`. No call of its store's waits for it."""

    def __init__(
        self,
        store: Store,
        url: str,
        token: str,
        instance: str,
        *,
        every: float = 1.0,
        timeout: float = 5.0,
        journal: int = _JOURNAL,
        events: EngineEvents | None = None,
        publish: Publishing | None = None,
    ) -> None:
        """Reports `every` so many seconds; `timeout` in seconds, for each step of a request.

        With `events` also what the engine has on its device, as soon as the store knows its pages; with
        `publish` what the tiers hold is told to routers, too. Raises OSError where it cannot listen for them.
        """
        self._store = store
        self._instance = instance
        self._every = every
        self._journal = Journal(journal)
        self._http = httpx.Client(
            base_url=url,
            timeout=timeout,
            headers={"authorization": f"Bearer {token}", "content-type": MEDIA_TYPE},
        )
        self._worker = Worker(store)
        self._engine = None if events is None else Engine(store, events)
        self._publisher = None if publish is None else Publisher(publish, store.counters)
        if publish is not None:
            store.members = ChunkMembers()
        self._epoch = 0
        self._sequence = 0
        self._account: Iterator[list[Change]] | None = None
        """What is left to tell of a full account."""
        self._begun = False
        self._unsent: Report | None = None
        self._silent = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sgkv-control-agent", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Within seconds; the controller forgets the instance when it has been silent for a while."""
        self._stop.set()
        for tier in self._store.tiers:
            tier.backend.watch(None)
        self._thread.join(_CLOSE_SECONDS)
        for part in (self._engine, self._publisher):
            if part is not None:
                part.close()
        self._worker.close(_CLOSE_SECONDS)
        self._http.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            with contained("reporting to the controller", self._store.counters):
                self._report_all()
            self._stop.wait(self._every)

    def _report_all(self) -> None:
        """Until there is nothing left to tell, or the controller does not answer."""
        for _ in range(_REPORTS):
            if self._unsent is None and (self._journal.lost or not self._begun or self._engine_lost):
                self._begin()
            report = self._unsent or self._next()
            if not self._send(report) or self._stop.is_set():
                return
            if report.complete and len(report.changes) == 0:
                return

    @property
    def _engine_lost(self) -> bool:
        return self._engine is not None and self._engine.lost

    def _begin(self) -> None:
        """A full account, under a new epoch: what tiers hold at this moment, then what the journal notes."""
        self._epoch = max(self._epoch + 1, time.time_ns())
        self._sequence, self._unsent = 0, None
        self._journal.restart()
        held: list[Iterator[Event]] = []
        for tier in self._store.tiers:
            device = device_of(tier)
            keys = tier.backend.watch(self._journal.watcher(device))
            if keys is not None:
                held.append(account(device, keys))
        self._account = batches(chain.from_iterable(held), MOST_HASHES)
        if self._engine is not None:
            self._account = chain(self._account, self._engine.account(MOST_HASHES))
        self._begun = True

    def _next(self) -> Report:
        told: list[Change] = []
        if self._account is not None:
            told = next(self._account, [])
            if not told:
                self._account = None
        if self._account is None:
            told = changes(self._journal.take(MOST_HASHES))
            self._publish(told)
            if self._engine is not None:
                told += self._engine.take(MOST_HASHES - sum(len(one.hashes) for one in told) // HASH_BYTES)
        stats = self._store.stats()
        return Report(
            self._instance,
            self._epoch,
            self._sequence,
            complete=self._account is None,
            changes=told,
            namespaces=list(map(_facts, self._store.sessions)),
            progress=self._worker.progress(),
            tiers={tier.name: device_of(tier) for tier in self._store.tiers},
            usage={name: (tier.used_bytes, tier.capacity_bytes) for name, tier in stats.tiers.items()},
            hit_pages=_by_label(stats.counters.get("hit_pages")),
            miss_pages=_by_label(stats.counters.get("miss_pages")),
        )

    def _publish(self, told: list[Change]) -> None:
        """Once each: a report that is sent again was published when it was made."""
        sessions, members = self._store.sessions, self._store.members
        if self._publisher is not None and sessions and members is not None:
            self._publisher.publish(list(events(told, members, sessions[0].namespace.page_tokens)))

    def _send(self, report: Report) -> bool:
        """Whether the controller has taken it. A report without an answer is sent again as it is."""
        self._unsent = report
        try:
            answer = self._http.post("/v1/report", content=msgspec.msgpack.encode(report))
            answer.raise_for_status()
            ack = _ack.decode(answer.content)
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            self._say(f"the controller does not take reports: {error}")
            return False
        if ack.verdict == "outdated":
            self._say(f"another process reports as {self._instance!r}: give each store a name of its own")
            return False
        self._heard(report, ack)
        return ack.verdict != "resync"

    def _heard(self, report: Report, ack: Ack) -> None:
        if self._silent:
            logger.warning("sgkv: the controller takes reports again")
        self._silent = False
        self._unsent = None
        self._sequence += 1
        self._begun = ack.verdict != "resync"
        self._worker.heard(report.progress)
        self._worker.take(ack.commands)

    def _say(self, what: str) -> None:
        """Once, until it works again."""
        if not self._silent:
            logger.warning("sgkv: %s", what)
        self._silent = True


def _by_label(counts: int | dict[str, int] | None) -> dict[str, int]:
    return counts if isinstance(counts, dict) else {}


def _facts(session: Session) -> NamespaceFacts:
    name = session.namespace
    return NamespaceFacts(
        name.digest,
        name.tenant,
        name.weights,
        name.pool,
        name.cell,
        name.page_tokens,
        session.pages_per_chunk,
    )
