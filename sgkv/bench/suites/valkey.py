"""The valkey backend on a real server of this machine, beside plainer clients of the same server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing

from sgkv.backends.base import PutItem, Status
from sgkv.backends.valkey import ValkeyBackend, ValkeyOptions
from sgkv.backends.valkey.dialling import Dialler
from sgkv.bench.bare import OURS, RAW, BareBackend
from sgkv.bench.contest import Contest, Page, Payload, fresh_keys
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.keyed import ByHand, Pipelined
from sgkv.bench.memory import cut, resident
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.timing import Series, interleave
from sgkv.testing.valkey import ValkeyServer

_BLOB, _BUFFER, _COUNT = 1 << 20, 64 << 10, 32
_CHAIN, _STORED = 400, 277
_CLIENT = "valkey-py"
_FASTEST = Bar("ratio_to_raw", ">=", 0.9, "of the fastest other client")
_QUICK = Bar("value", "<=", 2, "ms beyond one round trip")


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """Batches of blobs of 1 MiB, and existence checks of 400 chunks."""
    try:
        with ValkeyServer(scratch.disk()) as server:
            yield from _moving(server.options, effort)
            yield _looking_up(server.options, effort)
    except FileNotFoundError as error:
        raise BenchError(str(error)) from error


def _moving(options: ValkeyOptions, effort: Effort) -> Iterator[Record]:
    count = effort.of(_COUNT, least=2)
    pages: list[Page] = [list(cut(blob, _BUFFER)) for blob in cut(resident(_BLOB * count), _BLOB)]
    contest = Contest(Payload(pages))
    with ExitStack() as stack:
        backend = stack.enter_context(closing(ValkeyBackend(options)))
        by_hand = stack.enter_context(closing(ByHand(options.address, contest.payload)))
        client = stack.enter_context(Dialler(options).control(options.address))
        ours = BareBackend(backend, contest.payload, None)
        plain = Pipelined(client, contest.payload)
        contest.run([{OURS: ours}, {RAW: by_hand}, {_CLIENT: plain}], effort.times(4))
    for operation in ("get", "put"):
        mine = contest.series(OURS, operation)
        others = {name: contest.series(name, operation) for name in (RAW, _CLIENT)}
        speed = contest.payload.size / mine.wall / 1e9
        yield _record(f"{operation}_1MiB", speed, "GB/s", mine, _fastest(others), _FASTEST)


def _looking_up(options: ValkeyOptions, effort: Effort) -> Record:
    """What one call for 400 keys takes beyond a round trip with the same questions, written by hand.

    The ratio is to valkey-py's pipeline, which makes requests and numbers in Python as the backend does.
    """
    keys = [f"chain/c/{key}" for key in fresh_keys(_CHAIN)]
    names = [(options.prefix + key).encode() for key in keys]
    nothing = Payload([])
    with ExitStack() as stack:
        backend = stack.enter_context(closing(ValkeyBackend(options)))
        by_hand = stack.enter_context(closing(ByHand(options.address, nothing)))
        client = stack.enter_context(Dialler(options).control(options.address))
        items = [PutItem(key, [memoryview(b"blob")]) for key in keys[:_STORED]]
        if any(status is not Status.OK for status in backend.put(items)):
            raise BenchError("the server does not take what is to be looked for")
        series = interleave(
            {
                OURS: lambda: _require(sum(backend.contains(keys))),
                RAW: lambda: _require(by_hand.exist(names)),
                _CLIENT: lambda: _require(Pipelined(client, nothing).exist(names)),
            },
            effort.times(10),
        )
    beyond = series[OURS].wall_beyond(series[RAW]) * 1e3
    return _record(f"lookup_{_CHAIN}", beyond, "ms", series[OURS], series[_CLIENT], _QUICK)


def _require(found: int) -> None:
    if found != _STORED:
        raise BenchError(f"existence checks find {found} of {_STORED} keys")


def _fastest(others: Mapping[str, Series]) -> Series:
    by_hand, client = others[RAW], others[_CLIENT]
    return by_hand if by_hand.speed_over(client) >= 1 else client


def _record(case: str, value: float, unit: str, ours: Series, other: Series, *bars: Bar) -> Record:
    return Record(
        "valkey",
        case,
        value,
        unit,
        ratio_to_raw=ours.speed_over(other),
        cpu_ratio_to_raw=ours.cpu_over(other),
        bars=bars,
    )
