"""The node's daemon, beside memcpy, preadv and a store in the engine's own process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from sgkv.backends.deadline import Deadline
from sgkv.bench.attached import Copies, SharedMemory, Stored, attach, open_session, wait_for
from sgkv.bench.contest import Contest, Page, Payload, fresh_keys
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.memory import cut, resident
from sgkv.bench.raw import Files
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.timing import interleave
from sgkv.config import load, resolve
from sgkv.store.base import PageSession, PageStore
from sgkv.store.build import open_store
from sgkv.store.span import Span
from sgkv.testing.node import NodeProcess

MIB = 1 << 20
SIZES = {"1MiB": MIB, "8MiB": 8 * MIB}
_TOTAL = 256 * MIB
_PAGES_A_CHUNK = 4
_TOKENS, _PAGE_TOKENS = 100_000, 64
_BATCH = 128
_OURS, _RAW = "sgkv", "raw"
_PATIENCE = 60.0
_PATIENT = {"contains": _PATIENCE, "get": _PATIENCE, "put": _PATIENCE}

_LOOKUP_BAR = Bar("value", "<=", 1, "ms")
_COPY_BAR = Bar("ratio_to_raw", ">=", 0.85, "of memcpy")
_DISK_BAR = Bar("ratio_to_raw", ">=", 0.9, "of preadv")
_CPU_BAR = Bar("cpu_ratio_to_raw", "<=", 0.25, "of a store in the engine")


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """``SIZE``: pages that the engine copies; ``SIZE_pool``: pages in memory that it shares."""
    with _daemon(scratch.disk(), [_cpu(4 * _TOTAL)]) as daemon:
        yield _lookup(daemon.socket, effort)
        for name, size in SIZES.items():
            count = effort.of(_TOTAL // size, least=_PAGES_A_CHUNK)
            memory = resident(count * size)
            yield from _transfers(daemon.socket, name, [[page] for page in cut(memory, size)], None, effort)
            with closing(SharedMemory(count * size)) as pool:
                pages = pool.pages(size)
                yield from _transfers(daemon.socket, f"{name}_pool", pages, pool, effort)
    yield _engine_cpu(effort, scratch)
    yield _disk_to_engine(effort, scratch)


@contextmanager
def _daemon(folder: Path, tiers: Sequence[Mapping[str, object]]) -> Iterator[NodeProcess]:
    with NodeProcess(folder, {"tiers": list(tiers), "write_behind": {"tail_delay": 0}}) as daemon:
        yield daemon


def _cpu(capacity: int) -> Mapping[str, object]:
    return {"type": "cpu", "capacity": capacity}


def _disk(folder: Path) -> Mapping[str, object]:
    return {"type": "disk", "path": str(folder), "capacity": "90%", "promote": False, "deadlines": _PATIENT}


def _lookup(socket: Path, effort: Effort) -> Record:
    """A chain of 100,000 tokens, all there; what a page costs that is almost empty does not count."""
    chain = fresh_keys(-(-effort.of(_TOKENS, least=_PAGE_TOKENS) // _PAGE_TOKENS))
    pages = [[page] for page in cut(resident(_BATCH * 4096), 4096)]
    with closing(attach(socket)) as store:
        session = open_session(store, 4096)
        for start in range(0, len(chain), _BATCH):
            batch = chain[start : start + _BATCH]
            if not all(session.set(Span(batch, chain[:start]), pages[: len(batch)], Deadline(_PATIENCE))):
                raise BenchError("a page was not stored")
        series = interleave({_OURS: lambda: _require_all(session, chain)}, effort.times(20))
        session.clear()
    return Record("node", "lookup_100k", series[_OURS].wall * 1e3, "ms", bars=(_LOOKUP_BAR,))


def _require_all(session: PageSession, chain: Sequence[str]) -> None:
    found = session.lookup(Span(chain), Deadline(_PATIENCE))
    if found.pages != len(chain):
        raise BenchError(f"a lookup found {found.pages} of {len(chain)} pages: {found.reason}")


def _transfers(
    socket: Path, name: str, pages: Sequence[Page], pool: SharedMemory | None, effort: Effort
) -> Iterator[Record]:
    contest = Contest(Payload(pages))
    with closing(attach(socket)) as store, closing(Copies(contest.payload)) as plain:
        if pool is not None:
            store.register_memory(pool.view, pool.descriptor)
        ours = Stored(open_session(store, sum(map(len, pages[0]))), contest.payload)
        contest.run([{_OURS: ours}, {_RAW: plain}], effort.times(3))
    for call, operation in (("set", "put"), ("get", "get")):
        yield _record(f"{call}_{name}", contest, operation, _COPY_BAR)


def _record(case: str, contest: Contest, operation: str, bar: Bar) -> Record:
    ours, plain = contest.series(_OURS, operation), contest.series(_RAW, operation)
    return Record(
        "node",
        case,
        contest.payload.size / ours.wall / 1e9,
        "GB/s",
        ratio_to_raw=ours.speed_over(plain),
        cpu_ratio_to_raw=ours.cpu_over(plain),
        bars=(bar,),
    )


def _engine_cpu(effort: Effort, scratch: Scratch) -> Record:
    """What storing costs the engine's process, all the way to disk, attached and embedded.

    One after the other: threads of an embedded store go on after its call.
    """
    size = MIB
    folder = scratch.disk()
    with closing(SharedMemory(effort.of(_TOTAL // size, least=_PAGES_A_CHUNK) * size)) as pool:
        contest = Contest(Payload(pool.pages(size)))
        with (
            _daemon(folder / "node", [_cpu(2 * _TOTAL), _disk(folder / "attached")]) as daemon,
            closing(attach(daemon.socket)) as attached,
        ):
            attached.register_memory(pool.view, pool.descriptor)
            _store_all(contest, _OURS, attached, size, effort)
        with closing(_embedded([_cpu(2 * _TOTAL), _disk(folder / "embedded")])) as embedded:
            _store_all(contest, _RAW, embedded, size, effort)
    ours, plain = contest.series(_OURS, "put"), contest.series(_RAW, "put")
    return Record(
        "node",
        "engine_cpu_per_gb",
        ours.cpu / contest.payload.size * 1e9 * 1e3,
        "ms CPU/GB",
        cpu_ratio_to_raw=ours.cpu_over(plain),
        bars=(_CPU_BAR,),
    )


def _store_all(contest: Contest, name: str, store: PageStore, size: int, effort: Effort) -> None:
    """Rounds of one contender, each until everything is on disk."""
    contest.run([{name: Stored(open_session(store, size), contest.payload, flushed=store)}], effort.times(1))


def _embedded(tiers: Sequence[Mapping[str, object]]) -> PageStore:
    settings = {"tiers": list(tiers), "write_behind": {"tail_delay": 0}}
    return open_store(resolve(load(settings, environ={}).config))


def _disk_to_engine(effort: Effort, scratch: Scratch) -> Record:
    """Blobs on the daemon's disk into the engine's pool; the daemon's memory has none of them."""
    size = MIB
    count = effort.of(_TOTAL // size, least=_PAGES_A_CHUNK)
    folder = scratch.disk()
    keys = fresh_keys(count)
    with (
        closing(SharedMemory(count * size)) as pool,
        _daemon(folder / "node", [_cpu(2 * _TOTAL), _disk(folder / "kv")]) as daemon,
        closing(attach(daemon.socket)) as store,
    ):
        store.register_memory(pool.view, pool.descriptor)
        payload = Payload(pool.pages(size))
        (folder / _RAW).mkdir()
        ours = Stored(open_session(store, size), payload, flushed=store)
        plain = Files(payload, folder / _RAW, _PAGES_A_CHUNK)
        ours.put(keys)
        plain.put(keys)
        daemon.stop()
        daemon.start()
        wait_for(ours.session, keys, _PATIENCE)
        payload.wipe()
        ours.get(keys)
        payload.require_intact(_OURS)
        series = interleave({_OURS: lambda: ours.get(keys), _RAW: lambda: plain.get(keys)}, effort.times(3))
    return Record(
        "node",
        "disk_to_engine",
        payload.size / series[_OURS].wall / 1e9,
        "GB/s",
        ratio_to_raw=series[_OURS].speed_over(series[_RAW]),
        bars=(_DISK_BAR,),
    )
