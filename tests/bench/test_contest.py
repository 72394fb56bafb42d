"""A contest believes nobody: what is read back is compared with what was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sgkv.backends.cpu import CpuBackend
from sgkv.bench.bare import BareBackend
from sgkv.bench.contest import Contender, Contest, Payload
from sgkv.bench.effort import BenchError
from sgkv.bench.memory import cut, resident
from sgkv.bench.raw import Files, Memcpy
from sgkv.bench.scratch import empty_files

PAGE = 16 << 10


def payload(pages: int = 4) -> Payload:
    return Payload([list(cut(page, PAGE // 2)) for page in cut(resident(pages * PAGE), PAGE)])


class Kept(Contender):
    """Keeps pages as bytes; each operation is written down in `log`."""

    def __init__(self, name: str, pages: Payload, log: list[str]) -> None:
        self.name, self.pages, self.log = name, pages, log
        self.kept: list[list[bytes]] = []

    def put(self, keys: Sequence[str]) -> None:
        self.log.append(f"{self.name} put")
        self.kept = [[bytes(buffer) for buffer in page] for page in self.pages.pages]

    def get(self, keys: Sequence[str]) -> None:
        self.log.append(f"{self.name} get")
        for page, kept in zip(self.pages.pages, self.kept, strict=True):
            for buffer, content in zip(page, kept, strict=True):
                buffer[:] = content

    def clear(self) -> None:
        self.log.append(f"{self.name} clear")


class Forgetful(Kept):
    """Says that it read, and reads nothing."""

    def get(self, keys: Sequence[str]) -> None:
        self.log.append(f"{self.name} get")


def test_a_read_that_fills_nothing_ends_the_contest() -> None:
    pages = payload()
    with pytest.raises(BenchError, match="forgetful read back 4 of 4 pages wrong"):
        Contest(pages).run([{"forgetful": Forgetful("f", pages, [])}], rounds=1)


def test_a_group_takes_its_turn_together_and_the_verifying_round_does_not_count() -> None:
    pages, log = payload(), list[str]()
    contest = Contest(pages)
    contest.run([{"a": Kept("a", pages, log), "b": Kept("b", pages, log)}], rounds=2)
    verifying = ["a put", "a get", "b put", "b get", "b clear", "a clear"]
    assert log == verifying + ["a put", "b put", "b get", "a get", "b clear", "a clear"] * 2
    assert len(contest.series("a", "put").costs) == 2


def test_groups_begin_in_turn_and_are_verified_once() -> None:
    pages, log = payload(), list[str]()
    contest = Contest(pages)
    groups = [{name: Kept(name, pages, log)} for name in "ab"]
    contest.run(groups, rounds=2)
    turns = [entry for entry in log if entry.endswith("put")]
    assert turns == ["a put", "b put", "a put", "b put", "b put", "a put"]
    log.clear()
    contest.run(groups[:1], rounds=1)
    assert log == ["a put", "a get", "a clear"]
    assert len(contest.series("a", "get").costs) == 3


def test_plain_files_give_back_what_they_hold_and_keep_their_names(tmp_path: Path) -> None:
    pages = payload(6)
    files = Files(pages, tmp_path, pages_a_file=4)
    files.put([f"key{at}" for at in range(6)])
    assert sorted(path.stat().st_size for path in tmp_path.iterdir()) == [2 * PAGE, 4 * PAGE]
    pages.wipe()
    files.get([f"key{at}" for at in range(6)])
    pages.require_intact("files")
    empty_files(tmp_path)
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0, 0]


def test_memcpy_works_in_the_blocks_that_the_backend_chose() -> None:
    pages = payload()
    arena = CpuBackend(1 << 20)
    try:
        ours = BareBackend(arena, pages, None)
        contest = Contest(pages)
        contest.run([{"ours": ours, "raw": Memcpy(pages, arena)}], rounds=1)
        assert arena.stats().blobs == 0
        assert arena.stats().leases == 0
    finally:
        arena.close()


def test_a_backend_without_room_is_an_error_and_no_figure() -> None:
    pages = payload(8)
    arena = CpuBackend(4 * PAGE)
    try:
        with pytest.raises(BenchError, match="cpu backend"):
            Contest(pages).run([{"ours": BareBackend(arena, pages, None)}], rounds=1)
    finally:
        arena.close()
