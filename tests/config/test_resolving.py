"""What a machine makes of automatic values and shares, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sgkv.config import ConfigError, Machine, Place, ResolvedConfig, ResolvedDisk, load, resolve, this_machine

GIB = 1 << 30
ROOMY = Place(total=1000 * GIB, free=800 * GIB, is_folder=True, writable=True)


def machine(memory: int = 64 * GIB, place: Place = ROOMY, stored: int = 0) -> Machine:
    return Machine(memory, Path("/home/x/.cache"), lambda _: place, lambda _, limit: min(stored, limit))


def resolved(on: Machine, **options: object) -> ResolvedConfig:
    return resolve(load(options, environ={}).config, on)


def disk(capacity: object = "auto", **more: object) -> list[dict[str, object]]:
    return [{"type": "disk", "path": "/srv/kv", "capacity": capacity, **more}]


def cpu(capacity: object) -> list[dict[str, object]]:
    return [{"type": "cpu", "capacity": capacity}]


@pytest.mark.parametrize(("memory", "expected"), [(2000, 4096), (64, 64 * 51.2), (1, 64)])
def test_automatic_memory_is_a_twentieth_within_bounds(memory: int, expected: float) -> None:
    assert resolved(machine(memory * GIB)).tiers[0].capacity == int(expected * (1 << 20))


@pytest.mark.parametrize(
    ("free", "stored", "expected"),
    [(800, 0, 64), (100, 0, 25), (60, 40, 25), (100, 500, 64)],
)
def test_automatic_disk_is_a_quarter_of_what_is_free_or_ours(free: int, stored: int, expected: int) -> None:
    on = machine(place=replace(ROOMY, free=free * GIB), stored=stored * GIB)
    assert resolved(on).tiers[1].capacity == expected * GIB


def test_a_restart_on_its_own_files_finds_the_same_capacity() -> None:
    empty = resolved(machine(place=replace(ROOMY, free=100 * GIB)), tiers=disk()).tiers[0].capacity
    filled = machine(place=replace(ROOMY, free=100 * GIB - empty), stored=empty)
    assert resolved(filled, tiers=disk()).tiers[0].capacity == empty


def test_shares_are_of_memory_of_the_file_system_and_of_the_cpu_tier() -> None:
    tiers = [*cpu("25%"), *disk("10%", min_free="1%")]
    found = resolved(machine(), tiers=tiers, write_behind={"max_bytes": "50%"})
    lower = found.tiers[1]
    assert isinstance(lower, ResolvedDisk)
    assert (found.tiers[0].capacity, lower.capacity, lower.min_free) == (16 * GIB, 100 * GIB, 10 * GIB)
    assert found.write_behind_bytes == 8 * GIB


def test_the_write_queue_is_half_of_the_cpu_tier_but_not_more_than_a_gibibyte() -> None:
    assert resolved(machine(), tiers=cpu("1GiB")).write_behind_bytes == GIB // 2
    assert resolved(machine(), tiers=cpu("8GiB")).write_behind_bytes == GIB
    assert resolved(machine(), tiers=disk()).write_behind_bytes == GIB


def test_the_automatic_place_is_in_the_users_cache_folder() -> None:
    lower = resolved(machine()).tiers[1]
    assert isinstance(lower, ResolvedDisk)
    assert (lower.path, lower.min_free) == (Path("/home/x/.cache/sgkv"), 2 * GIB)


@pytest.mark.parametrize(
    ("tiers", "place", "said"),
    [
        (cpu("65GiB"), ROOMY, "tiers.0.capacity: 65 GiB is more than this machine's memory has (64 GiB)"),
        (
            disk("2TiB"),
            ROOMY,
            "tiers.0.capacity: 2 TiB is more than the file system of /srv/kv has (1000 GiB)",
        ),
        (disk("1GiB", min_free="2TiB"), ROOMY, "tiers.0.min_free: 2 TiB is more than"),
        (
            disk(),
            replace(ROOMY, is_folder=False),
            "tiers.0.path: /srv/kv is, or lies below, a file: name a folder",
        ),
        (disk(), replace(ROOMY, writable=False), "tiers.0.path: /srv/kv may not be written by this user"),
        (disk(), replace(ROOMY, free=0), "tiers.0.capacity: /srv/kv has no room left"),
    ],
)
def test_what_the_machine_cannot_give_is_refused(
    tiers: list[dict[str, object]], place: Place, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(machine(place=place), tiers=tiers)
    assert said in str(caught.value)


def test_what_is_doubtful_is_said_and_accepted() -> None:
    tight = machine(place=replace(ROOMY, free=100 * GIB))
    (said,) = resolved(tight, tiers=disk("200GiB")).warnings
    assert said.startswith("tiers.0.capacity: 200 GiB, but only 98 GiB may be written at /srv/kv")
    assert not resolved(
        replace(tight, stored=lambda _, limit: min(150 * GIB, limit)), tiers=disk("200GiB")
    ).warnings
    (said,) = resolved(machine(), tiers=cpu("40GiB")).warnings
    assert "over half of this machine's memory" in said
    assert not resolved(machine()).warnings


class TestThisMachine:
    """The real facts, on real files."""

    def test_memory_and_cache_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        here = this_machine()
        assert here.cache_home == tmp_path
        assert here.memory > 1 << 26

    def test_a_path_that_does_not_exist_yet_has_the_facts_of_the_folder_above(self, tmp_path: Path) -> None:
        place = this_machine().place(tmp_path / "a" / "b")
        assert place.is_folder
        assert place.writable
        assert 0 < place.free <= place.total

    def test_a_file_is_no_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        assert not this_machine().place(tmp_path / "file" / "below").is_folder

    def test_a_dangling_link_is_no_folder(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "gone")
        assert not this_machine().place(tmp_path / "link").is_folder

    def test_stored_bytes_are_counted_up_to_the_limit(self, tmp_path: Path) -> None:
        for name in ("a", "b/c", "b/d/e"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(bytes(100))
        stored = this_machine().stored
        assert stored(tmp_path, 1000) == 300
        assert 100 <= stored(tmp_path, 50) < 300
        assert stored(tmp_path / "gone", 1000) == 0
