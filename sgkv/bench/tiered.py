"""What the suite `vllm` measures, where vLLM is: ``python -m sgkv.bench.tiered SCALE ROUNDS MEMORY DISK``.

The tier is the one that vLLM loads, with vLLM's own job and context types, over a disk tier; what calls
it here stands in for the scheduler.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from vllm.v1.kv_offload.base import ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.tiering.base import TransferJob

from sgkv.bench.contest import Payload
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.raw import Files
from sgkv.bench.records import Bar, Record
from sgkv.bench.timing import Series, cost_of, interleave, settled_heap
from sgkv.vllm.tier import SgkvTier

_ROW = 1 << 20
_ROWS = 64
_CHUNKS = 400
_TOKENS = 256
_PATIENT = {"contains": 120, "get": 120, "put": 120}
_SPEED = Bar("ratio_to_raw", ">=", 0.9, "of one file a row")
_LOOKUP = Bar("value", "<=", 50, "µs of the scheduler's thread")


class Scheduler:
    """A tier over rows of memory, and the calls that vLLM's scheduler makes."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.memory = np.zeros((rows, _ROW), np.int8)
        tiers = [{"type": "disk", "path": str(folder), "capacity": "2GiB", "deadlines": _PATIENT}]
        engine = {"exists_deadline": 120, "get_deadline": 120, "set_deadline": 120}
        spec = SimpleNamespace(config=_offloading())
        view = self.memory.data
        self.tier = SgkvTier(spec, view, "SgkvTier", tiers=tiers, engine=engine)
        self._jobs = count()

    def move(self, keys: Sequence[bytes], *, load: bool) -> None:
        """One job over the first rows; raises BenchError where anything was not moved."""
        rows = np.arange(len(keys), dtype=np.int32)
        job = TransferJob(next(self._jobs), keys, rows, load, context(keys))
        (self.tier.submit_load if load else self.tier.submit_store)(job)
        self.tier.transfers.wait(240)
        results = list(self.tier.get_finished_jobs())
        if [result.success for result in results] != [True]:
            raise BenchError(f"the tier did not move its rows: {results}")

    def lookup(self, keys: Sequence[bytes], of: Any) -> list[Any]:
        """One step of the scheduler: every key, then the end of the step."""
        lookup = self.tier.lookup
        answers = [lookup(key, of) for key in keys]
        self.tier.on_schedule_end(ScheduleEndContext((), ()))
        return answers

    def answered(self) -> None:
        """Wait until the lookups that were asked for are answered: one thread, in their order."""
        last = self.tier.lookups.submit(lambda: None)
        if last is None:
            raise BenchError("the lookups are too many")
        last.result(60)
        self.tier.get_finished_jobs()


def context(keys: Sequence[bytes]) -> Any:
    """A request whose chunks are `keys`."""
    made = ReqContext(req_id=keys[0].hex())
    for index, key in enumerate(keys, 1):
        made.set_offload_key_position(key, index * _TOKENS)
    return made


def fresh_keys(number: int) -> list[bytes]:
    return [make_offload_key(os.urandom(32), 0) for _ in range(number)]


def measure(effort: Effort, memory: Path, disk: Path) -> Iterator[Record]:
    """Stores in the folder `memory`, where no device hides what our code costs; loads on `disk`, from the
    page cache, because a memory file system cannot do what the disk tier asks first (RWF_NOWAIT).
    """
    with _contest(memory, effort) as contest:
        yield _speed("tier_store_1MiB", interleave(contest.stores(), effort.rounds), contest.rows)
    with _contest(disk, effort) as contest:
        for store in contest.stores().values():
            store()
        contest.check()
        yield _speed("tier_load_1MiB", interleave(contest.loads(), effort.rounds), contest.rows)
        yield from _lookups(contest.scheduler, effort)


class _Contest:
    """The tier and one file a row, on the same rows."""

    def __init__(self, folder: Path, rows: int) -> None:
        (folder / "raw").mkdir()
        self.rows = rows
        self.scheduler = Scheduler(folder / "sgkv", rows)
        flat = self.scheduler.memory.data.cast("B")
        pages = [[flat[at : at + _ROW]] for at in range(0, rows * _ROW, _ROW)]
        self._files = Files(Payload(pages), folder / "raw", pages_a_file=1)
        self._keys, self._names = _Fresh(rows), _Fresh(rows)

    def stores(self) -> dict[str, Callable[[], object]]:
        return {
            "sgkv": lambda: self.scheduler.move(self._keys.new(), load=False),
            "raw": lambda: self._files.put([key.hex() for key in self._names.new()]),
        }

    def loads(self) -> dict[str, Callable[[], object]]:
        return {
            "sgkv": lambda: self.scheduler.move(self._keys.last, load=True),
            "raw": lambda: self._files.get([key.hex() for key in self._names.last]),
        }

    def check(self) -> None:
        """Raises BenchError where the tier does not bring back what it was given."""
        wanted = self.scheduler.memory.copy()
        for load in self.loads().values():
            self.scheduler.memory[:] = 0
            load()
            if not np.array_equal(self.scheduler.memory, wanted):
                raise BenchError("other bytes came back than were stored")


@contextmanager
def _contest(folder: Path, effort: Effort) -> Iterator[_Contest]:
    contest = _Contest(folder, effort.of(_ROWS, least=4))
    try:
        yield contest
    finally:
        contest.scheduler.tier.shutdown()


class _Fresh:
    """Keys that nobody has used, and those of the last time."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.last: list[bytes] = []

    def new(self) -> list[bytes]:
        self.last = fresh_keys(self._number)
        return self.last


def _speed(case: str, series: dict[str, Series], rows: int) -> Record:
    ours, raw = series["sgkv"], series["raw"]
    return Record(
        "vllm",
        case,
        rows * _ROW / ours.wall / 1e9,
        "GB/s",
        ratio_to_raw=ours.speed_over(raw),
        cpu_ratio_to_raw=ours.cpu_over(raw),
        bars=(_SPEED,),
    )


def _lookups(scheduler: Scheduler, effort: Effort) -> Iterator[Record]:
    """A step over chunks whose answers are there, and the step before it that asks for them."""
    known, first = [], []
    with settled_heap():
        for _ in range(effort.times(4)):
            keys = fresh_keys(_CHUNKS)
            of = context(keys)
            first.append(cost_of(lambda keys=keys, of=of: scheduler.lookup(keys, of)))  # type: ignore[misc]
            scheduler.answered()
            known.append(cost_of(lambda keys=keys, of=of: scheduler.lookup(keys, of)))  # type: ignore[misc]
            if {answer.name for answer in scheduler.lookup(keys, of)} != {"MISS"}:
                raise BenchError("a lookup was not answered")
            scheduler.tier.on_request_finished(of)
    yield Record("vllm", "tier_lookup_400", Series(known).wall * 1e6, "µs", bars=(_LOOKUP,))
    yield Record("vllm", "tier_lookup_400_first", Series(first).wall * 1e6, "µs")


def _offloading() -> Any:
    """One group of plain attention layers on one rank, as vLLM describes it."""
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(_TOKENS, ("model.layers.0.self_attn.attn",), 0),),
        worker_kv_bytes_per_block=_ROW,
        enable_kv_cache_events=False,
        extra_config={},
        engine_id="bench",
        model=OffloadingModelConfig("bench", "bfloat16"),
        cache=OffloadingCacheConfig(tokens_per_hash=_TOKENS, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(
            rank=0,
            world_size=1,
            tp_size=1,
            pp_size=1,
            pcp_size=1,
            dcp_size=1,
            data_parallel_index=0,
            data_parallel_size=1,
            data_parallel_rank_local=None,
            is_parallelism_agnostic=True,
        ),
    )


if __name__ == "__main__":
    memory, disk = map(Path, sys.argv[3:])
    records = list(measure(Effort(float(sys.argv[1]), int(sys.argv[2])), memory, disk))
    (disk / "records").write_bytes(pickle.dumps(records))
    os._exit(0)  # vLLM's import leaves threads that would be waited for
