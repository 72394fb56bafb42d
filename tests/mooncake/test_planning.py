"""How reads are cut into native calls, and what the library's numbers come to."""

from threading import Event
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.backends.base import GetItem, Part, Status
from sgkv.backends.mooncake import client
from sgkv.backends.mooncake.adrift import Adrift
from sgkv.backends.mooncake.claims import Removals
from sgkv.backends.mooncake.client import Client, Connection, State
from sgkv.backends.mooncake.codes import read_status, settled, start_status
from sgkv.backends.mooncake.keys import native_key, own_key, pattern_below
from sgkv.backends.mooncake.options import MooncakeOptions
from sgkv.backends.mooncake.reader import plan
from sgkv.backends.mooncake.regions import Regions
from sgkv.backends.mooncake.unreachable import Unreachable

SLOT = 64


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 30), st.integers(1, 200)), min_size=1, max_size=5), max_size=12
    )
)
def test_every_byte_is_asked_for_once_in_calls_that_fit_a_slot(shapes: list[list[tuple[int, int]]]):
    """A shape is the gaps and lengths of an item's parts."""
    items, wanted = [], {}
    for at, shape in enumerate(shapes):
        offset, parts = 0, []
        for gap, size in shape:
            offset += gap
            parts.append(Part(offset, memoryview(bytearray(size))))
            wanted |= {(at, offset + byte): (at, len(parts) - 1) for byte in range(size)}
            offset += size
        items.append(GetItem(str(at), parts))
    seen = []
    for load in plan(items, SLOT):
        assert 0 < load.size == sum(piece.size for piece in load.ranges) <= SLOT
        for piece in load.ranges:
            assert piece.size == sum(map(len, piece.targets))
            seen += [(piece.item, piece.offset + byte) for byte in range(piece.size)]
    assert sorted(seen) == sorted(wanted)
    for at, item in enumerate(items):
        ranges = [piece for load in plan(items, SLOT) for piece in load.ranges if piece.item == at]
        assert [piece.nth for piece in ranges] == list(range(len(ranges)))
        assert ranges[-1].parts == len(item.parts)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, Status.OK),
        *((code, Status.SHORT) for code in (9, 11, 0, -600)),
        *((code, Status.ABSENT) for code in (-703, -704, -707, -712)),
        *((code, Status.ERROR) for code in (-800, -900, -901, -1)),
    ],
)
def test_only_the_exact_size_is_a_read(code: int, status: Status):
    assert read_status(code, 10) is status


def test_room_that_was_asked_for():
    answers = {0: Status.OK, -705: Status.EXISTS, -200: Status.FULL, -600: Status.ERROR, -901: Status.ERROR}
    assert {code: start_status(code) for code in answers} == answers


def test_after_which_answers_nothing_can_land_any_more():
    assert all(map(settled, [0, 10, -600, -704, -900, -901]))
    assert not any(map(settled, [-800, -707, -1, -10]))


def test_our_keys_are_told_from_those_of_others():
    assert own_key(native_key("a/b")) == "a/b"
    assert own_key("someone-elses") is None
    assert pattern_below("a.b/") == r"^sgkv/a\.b/"


def test_regions_do_not_overlap_and_are_found_by_what_lies_in_them():
    regions = Regions()
    memory = memoryview(bytearray(1000))
    low, high = regions.add(memory[:400]), regions.add(memory[500:])
    assert low is not None
    assert regions.add(memory[399:500]) is None
    assert regions.locate(memory[100:400]) == low.start + 100
    assert regions.locate(memory[350:450]) is None
    assert regions.locate(memory[400:500]) is None
    assert regions.locate(memory[:0]) is None
    assert regions.locate(memory[500:].toreadonly()) == high.start
    regions.drop(low)
    assert regions.locate(memory[:10]) is None
    assert regions.size == 500


def test_unreachable_blobs_are_forgotten_after_the_masters_own_patience():
    clock = Clock()
    unreachable = Unreachable(clock)
    unreachable.add(["a", "b"])
    unreachable.discard(["b"])
    assert ("a" in unreachable, "b" in unreachable) == (True, False)
    clock.now += 11
    assert "a" not in unreachable


def test_blobs_adrift_may_be_revoked_later():
    clock = Clock()
    adrift = Adrift(clock)
    adrift.add(["a"])
    assert adrift.settled() == []
    assert "a" in adrift
    clock.now += 11
    assert adrift.settled() == ["a"]
    assert "a" not in adrift


def test_readers_learn_of_removals_under_them():
    removals = Removals()
    with removals.watching(["n/a", "n/b", "m/c"]) as removed:
        removals.note(["n/b", "n/z"])
        assert removed == {"n/b"}
        removals.note_prefix("m/")
        assert removed == {"n/b", "m/c"}
    removals.note(["n/a"])
    assert removed == {"n/b", "m/c"}


def test_a_connection_that_comes_after_closing_is_ended(monkeypatch: pytest.MonkeyPatch):
    """The memory that it gives to the pool would stay there for as long as the process lives."""
    asked, come, ended = Event(), Event(), Event()

    def open_late(_client: Client) -> Connection:
        asked.set()
        come.wait(10)
        return Connection(SimpleNamespace(close=ended.set), None)

    monkeypatch.setattr(Client, "_open", open_late)
    monkeypatch.setattr(client, "_DRAIN_SECONDS", 0.1)
    late = Client(MooncakeOptions())
    assert not late.connect(0.0)
    assert asked.wait(10)
    late.close()
    come.set()
    assert ended.wait(10)
    assert late.state is State.CLOSED
    assert late.why_not is Status.CLOSED


@pytest.mark.parametrize(
    "options",
    [
        {"master": "nowhere"},
        {"master": ":1"},
        {"staging_bytes": 1},
        {"replicas": 0},
        {"ssd_path": "/ssd"},
        {"standalone": "h:1", "segment_bytes": 1 << 20},
    ],
    ids=str,
)
def test_options_that_cannot_be(options: dict[str, object]):
    with pytest.raises(ValueError):
        MooncakeOptions(**options)
