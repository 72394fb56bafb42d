"""Copies between tiers: what arrives, what is passed over, in which order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sgkv.backends.base import GetItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from sgkv.backends.faulty import Fault, FaultRule, Faulty
from sgkv.backends.wrapper import Wrapper
from sgkv.prewarm.copying import copy_blobs
from sgkv.prewarm.outcomes import Ended, Outcome, Report
from sgkv.prewarm.pace import Control
from sgkv.prewarm.planning import Limits
from sgkv.prewarm.running import Run
from sgkv.prewarm.selection import Selection
from tests.prewarm.blobs import OTHER, SIZE, chunk, contents, disk, fill, flip, key_of, path_of, set_used

ALL = Selection()


class Reads(Wrapper):
    """Notes which keys are read, in order."""

    def __init__(self, inner: DiskBackend) -> None:
        super().__init__(inner)
        self.keys: list[str] = []

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        self.keys += [item.key for item in items]
        return self.inner.get(items, deadline)


def copied(source, target, selection=ALL, limits=None, run=None, **options: object) -> Report:
    run = run or Run(**options)
    copy_blobs(source, target, selection, limits or Limits(), run)
    return run.report("copy")


def counts(report: Report) -> dict[str, int]:
    return {outcome.value: amount.items for outcome, amount in report.outcomes.items()}


def impatient() -> Control:
    return Control(attempts=1)


class TestWhatArrives:
    def test_every_blob_byte_for_byte(self, far, near):
        fill(far, 12)
        fill(far, 3, OTHER)
        report = copied(far, near)
        assert counts(report) == {"copied": 15}
        assert (report.ended, report.exit_code) == (Ended.COMPLETE, 0)
        assert contents(near) == contents(far)

    def test_what_is_there_is_not_read_again(self, far, near):
        fill(far, 10)
        fill(near, 4)
        source = Reads(far)
        assert counts(copied(source, near)) == {"copied": 6, "present": 4}
        assert len(source.keys) == 6
        assert counts(copied(source, near)) == {"present": 10}
        assert len(source.keys) == 6

    def test_single_pages_too(self, far, near):
        far.put([chunk(1, pages=1)])
        assert counts(copied(far, near)) == {"copied": 1}

    def test_other_peoples_objects_are_passed_over(self, far, near, tmp_path):
        fill(far, 1)
        stray = tmp_path / "far" / "blobs" / "README"
        stray.write_text("not ours")
        (tmp_path / "far" / "blobs" / "a" / "c" / "00").mkdir(parents=True)
        assert counts(copied(far, near)) == {"copied": 1}

    def test_the_expiry_is_that_of_the_header(self, far, tmp_path):
        far.put([chunk(1, expires_at=int(time.time()) + 3600), chunk(2, expires_at=5)])
        put = []

        class Puts(Wrapper):
            def put(self, items, deadline=None):
                put.extend((item.key, item.expires_at) for item in items)
                return self.inner.put(items, deadline)

        target = Puts(disk(tmp_path / "target"))
        assert counts(copied(far, target)) == {"copied": 1, "expired": 1}
        assert [(key, when > time.time()) for key, when in put] == [(key_of(1), True)]
        target.close()

    def test_a_dry_run_moves_nothing(self, far, near):
        fill(far, 5)
        fill(near, 1)
        report = copied(far, near, dry_run=True)
        assert counts(report) == {"planned": 4, "present": 1}
        assert report.outcomes[Outcome.PLANNED].bytes == 4 * SIZE
        assert len(contents(near)) == 1

    def test_reading_leaves_no_trace_in_the_order_of_eviction(self, near, tmp_path):
        folder = tmp_path / "unmarked"
        source = disk(folder, marks_use=False)
        (key,) = fill(source, 1)
        set_used(folder, key, 1000)
        copied(source, near)
        assert path_of(folder, key).stat().st_mtime == 1000
        source.close()


class TestBadBlobs:
    @pytest.mark.parametrize("offset", [0, 3000, 4096, SIZE - 1], ids=["magic", "header", "page", "end"])
    def test_a_flipped_bit_is_reported_and_not_copied(self, far, near, tmp_path, offset):
        fill(far, 3)
        flip(path_of(tmp_path / "far", key_of(1)), offset)
        report = copied(far, near)
        assert counts(report) == {"copied": 2, "corrupt": 1}
        assert [problem.item for problem in report.problems] == [key_of(1)]
        assert report.exit_code == 1
        assert key_of(1) not in contents(near)

    def test_a_truncated_one(self, far, near, tmp_path):
        fill(far, 1)
        path = path_of(tmp_path / "far", key_of(0))
        path.write_bytes(path.read_bytes()[:-1])
        assert counts(copied(far, near)) == {"corrupt": 1}

    def test_one_under_another_ones_key(self, far, near, tmp_path):
        fill(far, 2)
        path_of(tmp_path / "far", key_of(0)).write_bytes(path_of(tmp_path / "far", key_of(1)).read_bytes())
        assert counts(copied(far, near)) == {"copied": 1, "foreign": 1}

    def test_one_of_another_namespace(self, far, near, tmp_path):
        fill(far, 1)
        other = chunk(0, OTHER)
        far.put([other])
        path_of(tmp_path / "far", key_of(0)).write_bytes(path_of(tmp_path / "far", other.key).read_bytes())
        assert counts(copied(far, near)) == {"copied": 1, "foreign": 1}

    def test_another_format_is_left_alone_and_no_problem(self, far, near, tmp_path):
        fill(far, 1)
        flip(path_of(tmp_path / "far", key_of(0)), 8)
        report = copied(far, near)
        assert counts(report) == {"unknown_format": 1}
        assert report.exit_code == 0

    def test_bytes_that_are_wrong_once_are_read_again(self, far, near):
        fill(far, 4)
        source = Faulty(far, [FaultRule(Fault.FLIP, frozenset({"get"}), times=1)])
        assert counts(copied(source, near, workers=1)) == {"copied": 4}
        assert contents(near) == contents(far)


class TestSelection:
    def test_by_namespace(self, far, near):
        fill(far, 3)
        fill(far, 2, OTHER)
        report = copied(far, near, Selection(namespaces=frozenset({OTHER})))
        assert counts(report) == {"copied": 2}
        assert report.as_json()["copies"][0]["namespaces"] == {OTHER: {"items": 2, "bytes": 2 * SIZE}}

    def test_by_key(self, far, near):
        fill(far, 5)
        keys = frozenset({key_of(1), key_of(3), key_of(99)})
        assert counts(copied(far, near, Selection(keys=keys))) == {"copied": 2}
        assert set(contents(near)) == {key_of(1), key_of(3)}

    def test_no_keys_are_no_blobs(self, far, near):
        fill(far, 2)
        assert counts(copied(far, near, Selection(keys=frozenset()))) == {}

    def test_the_hottest(self, far, near, tmp_path):
        for number, key in enumerate(fill(far, 6)):
            set_used(tmp_path / "far", key, 6000 + 60 * number)
        copied(far, near, Selection(hottest_bytes=2 * SIZE + 1))
        assert set(contents(near)) == {key_of(4), key_of(5)}


class TestLimits:
    def test_max_bytes_ends_the_run_and_the_next_goes_on(self, far, near):
        fill(far, 5)
        report = copied(far, near, limits=Limits(max_bytes=2 * SIZE))
        assert counts(report) == {"copied": 2, "left": 3}
        assert (report.ended, report.exit_code) == (Ended.LIMIT, 0)
        assert counts(copied(far, near, limits=Limits(max_bytes=2 * SIZE))) == {
            "copied": 2,
            "left": 1,
            "present": 2,
        }

    @pytest.mark.parametrize("hottest_first", [True, False])
    def test_the_order(self, far, near, tmp_path, hottest_first):
        keys = fill(far, 5)
        for number, key in enumerate(keys):
            set_used(tmp_path / "far", key, 6000 + 60 * number)
        source = Reads(far)
        copied(source, near, limits=Limits(hottest_first=hottest_first), workers=1)
        assert source.keys == (keys[::-1] if hottest_first else keys)

    def test_within_a_minute_the_head_of_a_sequence_goes_with_what_is_kept(self, far, near, tmp_path):
        """A sequence is written and read from its head, so that this has the earliest time."""
        for number, key in enumerate(fill(far, 5)):
            set_used(tmp_path / "far", key, 6000 + number)
        copied(far, near, Selection(hottest_bytes=2 * SIZE))
        assert set(contents(near)) == {key_of(0), key_of(1)}

    def test_no_more_than_the_target_holds(self, far, tmp_path):
        """Of what would not stay anyway nothing is copied: the hottest are, and all of them stay."""
        for number, key in enumerate(fill(far, 12)):
            set_used(tmp_path / "far", key, 6000 + 60 * number)
        small = disk(tmp_path / "small", capacity=8 * SIZE)
        report = copied(far, small)
        assert counts(report) == {"copied": 7, "left": 5}
        assert set(contents(small)) == {key_of(number) for number in range(5, 12)}
        assert small.stats().evicted_blobs == 0
        small.close()


class TestTrouble:
    def test_passing_trouble_is_tried_again(self, far, near):
        fill(far, 4)
        source = Faulty(far, [FaultRule(Fault.STATUS, frozenset({"get"}), times=2, status=Status.TIMEOUT)])
        target = Faulty(near, [FaultRule(Fault.STATUS, frozenset({"put"}), times=2, status=Status.ERROR)])
        report = copied(source, target)
        assert counts(report) == {"copied": 4}
        assert report.facts["retries"] == 4

    def test_lasting_trouble_of_one_blob_is_a_problem_and_the_others_go_on(self, far, near):
        fill(far, 4)
        source = Faulty(far, [FaultRule(Fault.STATUS, frozenset({"get"}), skip=1, times=1)])
        report = copied(source, near, control=impatient(), workers=1)
        assert counts(report) == {"copied": 3, "failed": 1}
        assert report.exit_code == 1
        assert report.problems[0].why == "cannot be read: error"

    def test_a_source_that_answers_nothing_ends_the_run(self, far, near):
        fill(far, 40)
        source = Faulty(far, [FaultRule(Fault.STATUS, frozenset({"get"}))])
        report = copied(source, near, control=impatient())
        assert (report.ended, report.exit_code) == (Ended.GAVE_UP, 3)
        assert report.items(Outcome.FAILED) <= 24
        assert report.items(Outcome.FAILED) + report.items(Outcome.LEFT) == 40

    def test_a_full_target_ends_the_run(self, far, near):
        fill(far, 10)
        target = Faulty(near, [FaultRule(Fault.STATUS, frozenset({"put"}), status=Status.FULL)])
        report = copied(far, target, workers=1)
        assert counts(report) == {"failed": 1, "left": 9}
        assert report.exit_code == 3

    def test_what_is_evicted_meanwhile_is_no_problem(self, far, near):
        fill(far, 2)
        source = Faulty(far, [FaultRule(Fault.STATUS, frozenset({"get"}), times=1, status=Status.ABSENT)])
        report = copied(source, near)
        assert counts(report) == {"copied": 1, "gone": 1}
        assert report.exit_code == 0

    def test_a_stop_lets_what_is_under_way_end_and_counts_the_rest(self, far, near):
        fill(far, 6)
        control = Control()

        class Stopping(Wrapper):
            def put(self, items, deadline=None):
                control.stop(Ended.INTERRUPTED)
                return self.inner.put(items, deadline)

        report = copied(far, Stopping(near), control=control, workers=1)
        assert counts(report) == {"copied": 1, "left": 5}
        assert report.exit_code == 130

    def test_an_error_of_ours_is_raised_and_ends_the_run(self, far, near):
        fill(far, 5)
        source = Faulty(far, [FaultRule(Fault.RAISE, frozenset({"get"}))])
        with pytest.raises(Exception, match="injected"):
            copied(source, near)


def test_a_worker_uses_one_buffer_for_all_its_blobs(far: DiskBackend, tmp_path: Path):
    fill(far, 8)
    buffers = []

    class Targets(Wrapper):
        def put(self, items, deadline=None):
            buffers.extend(buffer.obj for item in items for buffer in item.buffers)
            return self.inner.put(items, deadline)

    target = Targets(disk(tmp_path / "target"))
    assert counts(copied(far, target, workers=1)) == {"copied": 8}
    assert len({id(buffer) for buffer in buffers}) == 1
    target.close()
