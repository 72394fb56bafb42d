"""The mooncake tier over TCP, with the storage node in a process of its own.

Beside it: the library's own calls on the same memory, and SGLang's `mooncake` backend on the same host pool.
Everything runs in a child that is alone in a network with only loopback, because the library's clients
listen on all interfaces.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from sgkv.backends.mooncake import LibraryMissingError, MooncakeOptions
from sgkv.bench.contest import Contest, Payload, fresh_keys
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.memory import cut, resident
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.sglang.ready import require_sglang
from sgkv.bench.timing import interleave
from sgkv.testing.loopback import alone, in_loopback

_OURS, _RAW, _PEER = "sgkv", "raw", "peer"
_SECONDS = 600
_CHUNKS = 400
_RAW_BAR = Bar("ratio_to_raw", ">=", 0.9, "of the library's calls")
_PEER_BAR = Bar("ratio_to_peer", ">=", 1, "of SGLang's mooncake backend")
_LOOKUP_BAR = Bar("value", "<=", 1, "ms beyond one batch_is_exist")


class Case(NamedTuple):
    """So many pages a call."""

    shape: str
    size: int
    batch: int


CASES = (Case("1MiB", 1 << 20, 16), Case("8MiB", 8 << 20, 8))


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """``put_SIZE_bBATCH`` and ``get_SIZE_bBATCH`` in calls of so many pages, ``lookup_400``, ``pd_1MiB``."""
    folder = scratch.disk()
    if alone():
        yield from _measure(effort, folder)
        return
    found = folder / "records"
    command = [sys.executable, "-m", __name__, str(effort.scale), str(effort.rounds), str(folder)]
    try:
        done = subprocess.run(  # noqa: S603 - ourselves
            in_loopback(command), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (PermissionError, subprocess.TimeoutExpired) as error:
        raise BenchError(str(error)) from error
    if done.returncode:
        raise BenchError((done.stderr.strip().splitlines() or ["the child said nothing"])[-1])
    yield from pickle.loads(found.read_bytes())  # noqa: S301 - written by our own child


def _measure(effort: Effort, folder: Path) -> Iterator[Record]:
    from sgkv.bench.pooled import own_pool
    from sgkv.bench.pushed import push

    require_sglang()
    try:
        for at, case in enumerate(CASES):
            with own_pool(folder / f"pool{at}") as options:
                yield from _throughput(case, options, effort)
        with own_pool(folder / "lookup") as options:
            yield _lookup(options, effort)
        yield push(effort)
    except (LibraryMissingError, OSError, RuntimeError) as error:
        raise BenchError(str(error)) from error


def _throughput(case: Case, options: MooncakeOptions, effort: Effort) -> Iterator[Record]:
    bare = _bare(case, options, effort)
    inside = _inside(case, options, effort)
    for operation in ("put", "get"):
        ours, plain = bare.series(_OURS, operation), bare.series(_RAW, operation)
        in_engine = inside.series(_OURS, operation)
        yield Record(
            "mooncake",
            f"{operation}_{case.shape}_b{case.batch}",
            bare.payload.size / ours.wall / 1e9,
            "GB/s",
            ratio_to_raw=ours.speed_over(plain),
            cpu_ratio_to_raw=ours.cpu_over(plain),
            ratio_to_peer=in_engine.speed_over(inside.series(_PEER, operation)),
            bars=(_RAW_BAR, _PEER_BAR),
        )


def _bare(case: Case, options: MooncakeOptions, effort: Effort) -> Contest:
    from sgkv.bench.pooled import OurPool, RawPool

    count = effort.of(case.batch, least=2)
    memory = resident(count * case.size)
    contest = Contest(Payload([[blob] for blob in cut(memory, case.size)]))
    pages = contest.payload.pages
    ours, raw = OurPool(options, memory, pages), RawPool(options, memory, pages)
    with closing(ours.backend), closing(raw):
        contest.run([{_OURS: ours}, {_RAW: raw}], effort.times(4))
    return contest


def _inside(case: Case, options: MooncakeOptions, effort: Effort) -> Contest:
    from sgkv.bench.sglang.pool import SHAPES, HostPages
    from sgkv.bench.sglang.pooled import InTree, PoolAdapter

    host = HostPages(SHAPES[case.shape], effort.of(case.batch, least=4))
    contest = Contest(Payload(host.pages()))
    with PoolAdapter(host, options) as ours, closing(InTree(host, options)) as peer:
        contest.run([{_OURS: ours}, {_PEER: peer}], effort.times(4))
    return contest


def _lookup(options: MooncakeOptions, effort: Effort) -> Record:
    from sgkv.bench.pooled import OurPool, RawPool

    memory = resident(_CHUNKS * 4096)
    pages = [[blob] for blob in cut(memory, 4096)]
    ours, raw = OurPool(options, memory, pages), RawPool(options, memory, pages)
    keys = fresh_keys(_CHUNKS)
    with closing(ours.backend), closing(raw):
        ours.put(keys)
        raw.put(keys)
        series = interleave(
            {
                _OURS: lambda: _require_all(ours.backend.contains(keys)),
                _RAW: lambda: _require_all(raw.store.batch_is_exist(keys)),
            },
            effort.times(10),
        )
    beyond = series[_OURS].wall_beyond(series[_RAW]) * 1e3
    ratio = series[_OURS].speed_over(series[_RAW])
    return Record("mooncake", f"lookup_{_CHUNKS}", beyond, "ms", ratio_to_raw=ratio, bars=(_LOOKUP_BAR,))


def _require_all(found: Sequence[object]) -> None:
    if not all(each == 1 for each in found):
        raise BenchError("a lookup did not find all that is there")


def _main() -> None:
    scale, rounds, folder = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    records = list(_measure(Effort(scale, rounds), folder))
    (folder / "records").write_bytes(pickle.dumps(records))


if __name__ == "__main__":
    _main()
