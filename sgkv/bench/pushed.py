"""Chunks pushed to a receiver in a process of its own, beside bare writes of the Transfer Engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from sgkv.backends.base import PutItem
from sgkv.backends.deadline import Deadline
from sgkv.bench.contest import fresh_keys
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.timing import interleave
from sgkv.chunk.header import Header, blob_size, checksum, encode_header, header_size
from sgkv.pd import Engine, Receiver, Sender
from sgkv.pd.engine import Region

_PAGES, _PAGE = 16, 64 << 10
_BYTES = blob_size(_PAGES, _PAGE)
_BATCH, _SECONDS = 16, 20
_BAR = Bar("ratio_to_raw", ">=", 0.9, "of bare writes")


class Target(NamedTuple):
    """Where the other process can be reached: its receiver, and memory for bare writes."""

    port: int
    session: str
    pointer: int


def push(effort: Effort) -> Record:
    """``pd_1MiB``: chunks of 16 pages of 64 KiB from registered memory. Raises BenchError."""
    engine, chunk = Engine(), _chunk()
    _require(engine.register_memory(chunk))
    bare, write = Region(engine, _BYTES), engine.native.transfer_sync_write
    count = effort.of(_BATCH, least=2)
    with _other_process() as target, closing(Sender(engine, ("127.0.0.1", target.port))) as sender:

        def ours() -> None:
            items = [PutItem(key, [chunk]) for key in fresh_keys(count)]
            _require(all(outcome.taken for outcome in sender.send_all(items, Deadline(_SECONDS))))

        def raw() -> None:
            for _ in range(count):
                _require(not write(target.session, bare.pointer, target.pointer, _BYTES))

        series = interleave({"sgkv": ours, "raw": raw}, effort.times(10))
    bare.release(quiet=True)
    speed = count * _BYTES / series["sgkv"].wall / 1e9
    ratio = series["sgkv"].speed_over(series["raw"])
    cpu = series["sgkv"].cpu_over(series["raw"])
    return Record(
        "mooncake", "pd_1MiB", speed, "GB/s", ratio_to_raw=ratio, cpu_ratio_to_raw=cpu, bars=(_BAR,)
    )


def _chunk() -> memoryview:
    whole, begin = memoryview(bytearray(_BYTES)), header_size(_PAGES)
    sums = checksum([whole[begin : begin + _PAGE]]) * _PAGES
    header = Header("0" * 32, "layer", "uint8", 16, 2, 2, (1024,), bytes(32 * _PAGES), sums)
    encode_header(header, whole[:begin])
    return whole


def _require(arrived: bool) -> None:
    if not arrived:
        raise BenchError("a chunk did not arrive")


@contextmanager
def _other_process() -> Iterator[Target]:
    command = [sys.executable, "-m", __name__]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603 - ourselves
        try:
            if process.stdout is None or len(words := process.stdout.readline().split()) != len(
                Target._fields
            ):
                raise BenchError("the receiver did not start")
            yield Target(int(words[0]), words[1], int(words[2]))
        finally:
            process.kill()


def _main() -> None:
    engine = Engine()
    bare = Region(engine, _BYTES)
    receiver = Receiver(engine, lambda _key, _blob: True, slot_bytes=_BYTES)
    with closing(receiver):
        sys.stdout.write(f"{receiver.address[1]} {engine.session} {bare.pointer}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    _main()
