"""The bare backends: blobs between one's own memory and a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sgkv.backends.base import Backend, GetItem, PutItem, Status
from sgkv.bench.contest import Contender, Contest, Group, Page, Payload
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.memory import cut, resident
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import empty_files
from sgkv.store.reading import whole

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"64KiB": 64 * KIB, "1MiB": MIB, "8MiB": 8 * MIB}
TOTAL = 128 * MIB
"""Bytes a batch of large blobs."""
MOST = 256
"""Small blobs a batch."""
TINY = 64
"""Bytes of a blob that costs nothing to move."""
BATCH = 128
"""What SGLang moves in one call (STORAGE_BATCH_SIZE)."""

OURS, RAW = "sgkv", "raw"

AddRaw = Callable[[Group, Payload], Sequence[Group]]
"""Puts the plain contender beside ours: in the same group, or in one of its own."""


class BareBackend(Contender):
    """A blob a page, put and got in one batch."""

    def __init__(self, backend: Backend, payload: Payload, folder: Path | None) -> None:
        """`folder` is where the backend keeps files, if it does."""
        self._backend = backend
        self._folder = folder
        self._pages = payload.pages

    def put(self, keys: Sequence[str]) -> None:
        items = [PutItem(_key(key), page) for key, page in zip(keys, self._pages, strict=True)]
        self._require(Status.OK, self._backend.put(items), "put")

    def get(self, keys: Sequence[str]) -> None:
        items = [GetItem(_key(key), whole(page)) for key, page in zip(keys, self._pages, strict=True)]
        self._require(Status.OK, self._backend.get(items), "get")

    def clear(self) -> None:
        if self._folder is not None:
            empty_files(self._folder)
        else:
            self._backend.delete([blob.key for blob in self._backend.scan()])

    def _require(self, wanted: Status, statuses: Sequence[Status], what: str) -> None:
        other = next((status for status in statuses if status is not wanted), None)
        if other is not None:
            raise BenchError(f"{what} on the {self._backend.name} backend: a blob ended as {other.value!r}")


@dataclass(frozen=True, slots=True)
class Bench:
    """A backend on its bench. Names of its records begin with what is measured, and say how much."""

    suite: str
    backend: Backend
    beside: AddRaw
    folder: Path | None = None
    """Where the backend keeps files, if it does."""

    def throughput(self, effort: Effort) -> Iterator[Record]:
        """Cases ``put_SIZE`` and ``get_SIZE``."""
        for name, size in SIZES.items():
            count = effort.of(min(MOST, TOTAL // size), least=2)
            contest = self._contest(Payload(_blobs(size, count)), effort.times(2))
            for operation in ("put", "get"):
                ours = contest.series(OURS, operation)
                speed = contest.payload.size / ours.wall / 1e9
                yield self._record(contest, operation, f"{operation}_{name}", speed, "GB/s")

    def fixed_cost(self, operation: str, bar: Bar, effort: Effort) -> Record:
        """Case ``put_fixed_us`` or ``get_fixed_us``: what an item costs beyond the plain call."""
        contest = self._contest(Payload(_blobs(TINY, BATCH)), effort.times(4))
        ours, plain = contest.series(OURS, operation), contest.series(RAW, operation)
        beyond = ours.wall_beyond(plain) / BATCH * 1e6
        return self._record(contest, operation, f"{operation}_fixed_us", beyond, "µs", bar)

    def _contest(self, payload: Payload, rounds: int) -> Contest:
        contest = Contest(payload)
        ours: Group = {OURS: BareBackend(self.backend, payload, self.folder)}
        contest.run(self.beside(ours, payload), rounds)
        return contest

    def _record(
        self, contest: Contest, operation: str, case: str, value: float, unit: str, *bars: Bar
    ) -> Record:
        ours, plain = contest.series(OURS, operation), contest.series(RAW, operation)
        return Record(
            self.suite,
            case,
            value,
            unit,
            ratio_to_raw=ours.speed_over(plain),
            cpu_ratio_to_raw=ours.cpu_over(plain),
            bars=bars,
        )


def _blobs(size: int, count: int) -> list[Page]:
    return [[blob] for blob in cut(resident(size * count), size)]


def _key(key: str) -> str:
    return f"bench/c/{key[:2]}/{key}"
