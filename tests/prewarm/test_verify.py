"""Verification: what is found, what is deleted, what is not read twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.backends.base import BlobInfo, Status
from sgkv.backends.disk import DiskBackend
from sgkv.backends.faulty import Fault, FaultRule, Faulty
from sgkv.backends.wrapper import Wrapper
from sgkv.prewarm.journal import Journal
from sgkv.prewarm.outcomes import BAD, Ended, Outcome, Report
from sgkv.prewarm.pace import Control
from sgkv.prewarm.running import Run
from sgkv.prewarm.selection import Selection
from sgkv.prewarm.verifying import verify_blobs
from tests.prewarm.blobs import OTHER, SIZE, chunk, contents, fill, flip, key_of, path_of
from tests.prewarm.test_copy import Reads, counts


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def damaged(far: DiskBackend, tmp_path: Path) -> DiskBackend:
    """Six blobs: one corrupt, one foreign, one expired, one of another format, two good."""
    fill(far, 5)
    far.put([chunk(5, expires_at=5)])
    folder = tmp_path / "far"
    flip(path_of(folder, key_of(1)), SIZE - 1)
    path_of(folder, key_of(2)).write_bytes(path_of(folder, key_of(3)).read_bytes())
    flip(path_of(folder, key_of(4)), 8)
    return far


def verified(
    tier, state: Path, run: Run | None = None, selection: Selection | None = None, **options
) -> Report:
    run = run or Run()
    with Journal(state, "verify") as journal:
        verify_blobs(tier, selection or Selection(), journal, run, **options)
    return run.report("verify")


def test_everything_is_told_apart(damaged, state):
    report = verified(damaged, state)
    assert counts(report) == {"good": 2, "corrupt": 1, "foreign": 1, "expired": 1, "unknown_format": 1}
    assert {problem.item for problem in report.problems} == {key_of(1), key_of(2)}
    assert report.exit_code == 1
    assert len(contents(damaged)) == 6


def test_the_bad_are_deleted_on_request_and_nothing_else(damaged, state):
    report = verified(damaged, state, delete=BAD)
    assert set(contents(damaged)) == {key_of(number) for number in (0, 3, 4, 5)}
    assert report.facts["deleted"] == {
        "corrupt": {"items": 1, "bytes": SIZE},
        "foreign": {"items": 1, "bytes": SIZE},
    }
    assert report.exit_code == 1
    assert verified(damaged, state).exit_code == 0


def test_the_expired_are_deleted_on_request(damaged, state):
    report = verified(damaged, state, delete=frozenset({Outcome.EXPIRED}))
    assert key_of(5) not in contents(damaged)
    assert len(contents(damaged)) == 5
    assert report.items(Outcome.EXPIRED) == 1


def test_one_wrong_read_makes_no_blob_bad(far, state):
    fill(far, 4)
    flaky = Faulty(far, [FaultRule(Fault.FLIP, frozenset({"get"}), times=1)])
    assert counts(verified(flaky, state, Run(workers=1), delete=BAD)) == {"good": 4}


def test_no_blob_is_deleted_on_the_word_of_one_read(far, state):
    """The tier fails, or the run is stopped, before a second read could agree."""
    fill(far, 1)
    flips = FaultRule(Fault.FLIP, frozenset({"get"}), times=1)
    fails = FaultRule(Fault.STATUS, frozenset({"get"}), status=Status.TIMEOUT)
    report = verified(Faulty(far, [flips, fails]), state, Run(Control(attempts=2)), delete=BAD)
    assert counts(report) == {"failed": 1}
    assert "no other agreed" in report.problems[0].why
    control = Control()
    control.wait = lambda seconds: control.stop(Ended.INTERRUPTED) if seconds else True
    assert counts(verified(Faulty(far, [flips]), state, Run(control), delete=BAD)) == {"left": 1}
    assert len(contents(far)) == 1


class Replaced(Wrapper):
    """A tier whose blobs were of other sizes when it was listed."""

    def __init__(self, inner: DiskBackend, bytes_more: int) -> None:
        super().__init__(inner)
        self.bytes_more = bytes_more

    def scan(self, prefix: str = "") -> Iterator[BlobInfo]:
        for blob in self.inner.scan(prefix):
            yield blob if prefix == blob.key else blob._replace(size=blob.size + self.bytes_more)


@pytest.mark.parametrize("bytes_more", [-100, 100])
def test_what_took_the_place_of_a_listed_blob_is_judged_by_its_own_size(far, state, bytes_more):
    fill(far, 2)
    report = verified(Replaced(far, bytes_more), state, Run(Control(attempts=2)), delete=BAD)
    assert counts(report) == {"good": 2}
    assert len(contents(far)) == 2


def test_what_cannot_be_looked_up_again_is_not_deleted(far, state, tmp_path):
    class Mute(Wrapper):
        def scan(self, prefix: str = "") -> Iterator[BlobInfo]:
            if prefix:
                raise ConnectionError("no listing")
            return self.inner.scan(prefix)

    fill(far, 1)
    flip(path_of(tmp_path / "far", key_of(0)), 5000)
    report = verified(Mute(far), state, delete=BAD)
    assert counts(report) == {"failed": 1}
    assert "no listing" in report.problems[0].why
    assert len(contents(far)) == 1


def test_a_tier_that_cannot_be_read_condemns_nothing(far, state):
    fill(far, 3)
    down = Faulty(far, [FaultRule(Fault.STATUS, frozenset({"get"}), status=Status.TIMEOUT)])
    report = verified(down, state, Run(Control(attempts=1)), delete=BAD)
    assert counts(report) == {"failed": 3}
    assert len(contents(far)) == 3


def test_an_interrupted_run_goes_on_where_it_was(far, state):
    fill(far, 6)
    assert counts(verified(far, state, max_bytes=4 * SIZE)) == {"good": 4, "left": 2}
    source = Reads(far)
    report = verified(source, state)
    assert counts(report) == {"good": 2, "done_before": 4}
    assert (len(source.keys), report.ended) == (2, Ended.COMPLETE)


def test_a_complete_run_leaves_no_state_and_the_next_reads_everything(far, state):
    fill(far, 3)
    verified(far, state)
    assert not state.exists()
    assert counts(verified(far, state)) == {"good": 3}


def test_what_was_bad_is_read_again_by_the_run_that_goes_on(far, state, tmp_path):
    fill(far, 3)
    for number in range(3):
        flip(path_of(tmp_path / "far", key_of(number)), 5000)
    verified(far, state, max_bytes=2 * SIZE)
    assert counts(verified(far, state)) == {"corrupt": 3}


def test_a_selection(far, state):
    fill(far, 3)
    fill(far, 2, OTHER)
    assert counts(verified(far, state, selection=Selection(namespaces=frozenset({OTHER})))) == {"good": 2}


def test_a_dry_run_reads_nothing_and_leaves_the_state(far, state):
    fill(far, 3)
    verified(far, state, max_bytes=SIZE)
    source = Reads(far)
    assert counts(verified(source, state, Run(dry_run=True))) == {"planned": 2, "done_before": 1}
    assert source.keys == []
    assert state.exists()


def test_a_state_file_that_takes_no_more_ends_the_run_with_the_error(far, state, monkeypatch):
    """A full disk, which cannot be had here for one file alone: the write is made to fail."""
    fill(far, 5)

    def full(self, digest, **facts):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "add", full)
    run = Run(workers=1)
    with pytest.raises(OSError, match="No space"):
        verified(far, state, run)
    assert run.control.stopped
