"""The adapter as SGLang calls it, beside memcpy, plain files, and SGLang's own file backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sgkv.bench.contest import Contest, Group, Payload
from sgkv.bench.effort import Effort
from sgkv.bench.machine import available_memory
from sgkv.bench.raw import Files, Memcpy
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.sglang.ready import require_sglang

if TYPE_CHECKING:
    from sgkv.bench.sglang.pool import HostPages, ModelShape

BATCH, SMALL_BATCH = 128, 32
"""Pages a call: what SGLang moves at most (STORAGE_BATCH_SIZE), and where that is too much."""
PAGES_A_CHUNK = 4
_COPIES = 3
"""Batches of the cpu tier in memory at once: pool, arena, and air."""
_DISK_BYTES = 256 << 20
"""Most bytes of a batch for the disk: the kernel makes whoever writes much more wait for the device."""
_SLACK = 64 << 20
"""Bytes of the arena beyond the pages."""
_PEER_SHARE = 1 / 3
"""The file backend takes part in few rounds: it takes longer than all others together."""
_CALLS = {"set": "put", "get": "get"}
_OURS, _RAW, _PEER = "sgkv", "raw", "peer"

_BARS = {
    "set_cpu": (Bar("ratio_to_raw", ">=", 0.9, "of memcpy"),),
    "get_cpu": (Bar("ratio_to_raw", ">=", 0.9, "of memcpy"),),
    "set_disk": (
        Bar("cpu_ratio_to_raw", "<=", 1.3, "CPU of pwritev"),
        Bar("ratio_to_peer", ">=", 3, "of the file backend"),
    ),
    "get_disk": (
        Bar("cpu_ratio_to_raw", "<=", 1.4, "CPU of preadv"),
        Bar("ratio_to_peer", ">=", 3, "of the file backend"),
    ),
}
_A_PAGE = Bar("value", "<=", 10, "µs")


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """Batches of full pages, and what a page costs that is almost empty."""
    require_sglang()
    from sgkv.bench.sglang.pool import SHAPES

    for size, shape in SHAPES.items():
        on_disk = _disk_contest(shape, effort, scratch.disk())
        yield from _throughput(f"{size}_cpu", "cpu", _cpu_contest(shape, effort), on_disk)
        yield from _throughput(f"{size}_disk", "disk", on_disk, on_disk)
    yield from _in_cells("8MiB", effort)
    yield from _fixed_costs(effort, scratch)


def _throughput(case: str, tier: str, contest: Contest, with_peer: Contest) -> Iterator[Record]:
    for call, operation in _CALLS.items():
        ours, plain = contest.series(_OURS, operation), contest.series(_RAW, operation)
        speed = contest.payload.size / ours.wall
        peer_speed = with_peer.payload.size / with_peer.series(_PEER, operation).wall
        yield Record(
            "hicache",
            f"{call}_{case}",
            speed / 1e9,
            "GB/s",
            ratio_to_raw=ours.speed_over(plain),
            cpu_ratio_to_raw=ours.cpu_over(plain),
            ratio_to_peer=speed / peer_speed,
            bars=_BARS[f"{call}_{tier}"],
        )


def _in_cells(size: str, effort: Effort) -> Iterator[Record]:
    """A cell for each kv head, beside the same tier without cells: strided copies, and smaller blobs."""
    from sgkv.bench.sglang.adapter import Adapter
    from sgkv.bench.sglang.pool import SHAPES, HostPages

    host = HostPages(SHAPES[size], effort.of(SMALL_BATCH))
    contest = Contest(Payload(host.pages()))
    capacity = contest.payload.size + _SLACK
    with (
        Adapter(host, capacity=capacity, head_group=1) as cells,
        Adapter(host, capacity=capacity) as whole,
    ):
        contest.run([{_OURS: cells}, {_RAW: whole}], effort.times(3))
    for call, operation in _CALLS.items():
        ours, plain = contest.series(_OURS, operation), contest.series(_RAW, operation)
        yield Record(
            "hicache",
            f"{call}_{size}_cells",
            contest.payload.size / ours.wall / 1e9,
            "GB/s",
            ratio_to_raw=ours.speed_over(plain),
            cpu_ratio_to_raw=ours.cpu_over(plain),
        )


def _cpu_contest(shape: ModelShape, effort: Effort) -> Contest:
    from sgkv.bench.sglang.pool import HostPages

    enough = available_memory() >= _COPIES * BATCH * shape.page_bytes
    host = HostPages(shape, effort.of(BATCH if enough else SMALL_BATCH))
    contest = Contest(Payload(host.pages()))
    with _cpu_group(host, contest.payload) as group:
        contest.run([group], effort.times(3))
    return contest


def _disk_contest(shape: ModelShape, effort: Effort, folder: Path) -> Contest:
    from sgkv.bench.sglang.peer import FileBackend
    from sgkv.bench.sglang.pool import HostPages

    pages = effort.of(min(BATCH, _DISK_BYTES // shape.page_bytes), least=PAGES_A_CHUNK)
    host = HostPages(shape, pages)
    contest = Contest(Payload(host.pages()))
    with _disk_groups(host, contest.payload, folder) as groups:
        peer: Group = {_PEER: FileBackend(host, folder / _PEER)}
        contest.run([*groups, peer], effort.times(_PEER_SHARE))
        contest.run(groups, effort.times(2 - _PEER_SHARE))
    return contest


def _fixed_costs(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """What a page costs beyond the plain call.

    A set on disk is measured in memory, where no device and no journal drown it; a get is not,
    because a memory file system cannot do what the disk tier asks first (RWF_NOWAIT).
    """
    from sgkv.bench.sglang.pool import TINY, HostPages

    host = HostPages(TINY, BATCH)
    contest = Contest(Payload(host.pages()))
    with _cpu_group(host, contest.payload) as group:
        contest.run([group], effort.times(4))
    for call in _CALLS:
        yield _fixed_cost(call, "cpu", contest)
    for call, folder in (("set", scratch.memory()), ("get", scratch.disk())):
        contest = Contest(Payload(host.pages()))
        with _disk_groups(host, contest.payload, folder) as groups:
            contest.run(groups, effort.times(4))
        yield _fixed_cost(call, "disk", contest)


def _fixed_cost(call: str, tier: str, contest: Contest) -> Record:
    ours, plain = (contest.series(name, _CALLS[call]) for name in (_OURS, _RAW))
    return Record(
        "hicache",
        f"{call}_fixed_us_{tier}",
        ours.wall_beyond(plain) / BATCH * 1e6,
        "µs",
        ratio_to_raw=ours.speed_over(plain),
        cpu_ratio_to_raw=ours.cpu_over(plain),
        bars=(_A_PAGE,),
    )


@contextmanager
def _cpu_group(host: HostPages, payload: Payload) -> Iterator[Group]:
    from sgkv.bench.sglang.adapter import Adapter

    with Adapter(host, capacity=payload.size + _SLACK) as adapter:
        arena = adapter.backend.store.tiers[0].arena
        assert arena is not None  # what a cpu tier is
        yield {_OURS: adapter, _RAW: Memcpy(payload, arena)}


@contextmanager
def _disk_groups(host: HostPages, payload: Payload, folder: Path) -> Iterator[list[Group]]:
    from sgkv.bench.sglang.adapter import Adapter

    plain = folder / _RAW
    plain.mkdir()
    with Adapter(host, folder=folder / _OURS) as adapter:
        yield [{_OURS: adapter}, {_RAW: Files(payload, plain, PAGES_A_CHUNK)}]
