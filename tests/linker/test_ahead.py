"""What a slow tier has is read from the lookup on, into bounded memory, and given back whatever happens."""

import time
from typing import Any

import pytest

from sgkv.sglang.linker import SgkvLinker
from sgkv.testing.waiting import wait_until
from tests.linker.conftest import PAGE, Linked, LinkerRig, blobs, fill, flip_a_bit, kv, rows, same, side
from tests.sglang import pools as make
from tests.sglang.conftest import chain
from tests.sglang.pools import slots

pytestmark = pytest.mark.slow

PAGES = range(1, 9)


@pytest.fixture
def keys() -> list[str]:
    return chain(8)


def stored(linkers: LinkerRig, keys: list[str], names: str = "disk", **options: Any) -> Linked:
    """Two chunks; after them the device holds something else."""
    pool = make.mha().device
    fill(pool, 1)
    linked = linkers.open(pool, names=names, **options)
    assert linked.offload([kv(keys, PAGES)])
    assert linked.linker.store.flush(30)
    return linked


def read(linked: Linked, rid: str = "r") -> None:
    """Wait until what a lookup began is in memory, as the plugin makes SGLang do."""
    wait_until(lambda: not linked.linker.not_yet(rid), "the pages to be read")


def held(linked: Linked) -> int:
    return linked.linker.bounds()["read_ahead_bytes"].used


@pytest.mark.parametrize("names", ["disk", "cpu+disk"])
def test_a_load_finds_what_its_lookup_began_to_read(linkers: LinkerRig, keys: list[str], names: str):
    before = stored(linkers, keys, names)
    written = rows(before.kvcache, PAGES)
    linked = linkers.open(before.kvcache, names=names)  # nothing in its memory
    fill(linked.kvcache, 2)
    assert linked.lookup([kv(keys)])[-1] == 8
    read(linked)
    assert linked.counted("hit_pages", "disk") == 8
    assert held(linked) > 0
    assert linked.load([kv(keys, PAGES)])
    assert same(rows(linked.kvcache, PAGES), written)
    assert linked.counted("hit_pages", "disk") == 8  # none of them twice
    linked.linker.reset()
    assert held(linked) == 0


def test_a_request_is_put_off_until_its_pages_are_there(linkers: LinkerRig, keys: list[str]):
    linked = stored(linkers, keys, disk={"simulate": {"bandwidth": 256 << 10}})
    lookups = linked.counted("lookup_pages", "hit")
    assert linked.lookup([kv(keys)])[-1] == 8
    assert linked.linker.not_yet("r")
    assert linked.lookup([kv(keys)])[-1] == 8  # SGLang's next step: no tier is asked again
    assert linked.counted("lookup_pages", "hit") == lookups + 8
    read(linked)
    assert linked.load([kv(keys, PAGES)])


def test_what_is_under_way_is_not_read_again(linkers: LinkerRig, keys: list[str]):
    """Between two steps SGLang's own tree may come to hold the first pages."""
    linked = stored(linkers, keys, disk={"simulate": {"bandwidth": 256 << 10}})
    assert linked.lookup([kv(keys)])[-1] == 8
    assert linked.lookup([kv(keys[2:])], keys[:2])[-1] == 6
    read(linked)
    assert linked.load([kv(keys[2:], range(3, 9))])
    assert linked.counted("hit_pages", "disk") == 8


def test_who_does_not_wait_is_waited_for(linkers: LinkerRig, keys: list[str]):
    """Without the plugin SGLang loads at once."""
    linked = stored(linkers, keys, disk={"simulate": {"bandwidth": 256 << 10}})
    written = rows(linked.kvcache, PAGES)
    fill(linked.kvcache, 2)
    assert linked.lookup([kv(keys)])[-1] == 8
    assert linked.load([kv(keys, PAGES)])
    assert same(rows(linked.kvcache, PAGES), written)
    assert linked.counted("hit_pages", "disk") == 8


def test_after_a_damaged_page_the_next_lookup_answers_less(linkers: LinkerRig, keys: list[str]):
    linked = stored(linkers, keys)
    written = rows(linked.kvcache, range(1, 4))
    flip_a_bit(blobs(linkers.folder))
    assert linked.lookup([kv(keys)])[-1] == 8
    wait_until(lambda: linked.counted("miss_pages", "corrupt") == 2, "both chunks to be read")
    assert linked.linker.not_yet("r")
    assert linked.lookup([kv(keys)]) == [1, 2, 3]  # the fourth is the damaged chunk's last
    assert not linked.linker.not_yet("r")
    fill(linked.kvcache, 2)
    assert linked.load([kv(keys[:3], range(1, 4))])
    assert same(rows(linked.kvcache, range(1, 4)), written)
    assert linked.counted("refused_loads") == 0


def test_a_window_that_cannot_be_read_shortens_the_prefix(linkers: LinkerRig):
    """The last state is damaged: the prefix that ends at the one before it is offered, and loaded whole."""
    both, keys = make.sliding_pools(), chain(8)
    linked = linkers.open(both, names="disk")
    for at in (0, 4):
        node, pages = keys[at : at + 4], range(at + 1, at + 5)
        assert linked.offload([kv(node, pages), side("swa", node[2:], slots(pages[2:], PAGE))], keys[:at])
    asked = [kv(keys), side("swa", keys[-2:])]
    assert linked.lookup(asked) == [4, 8]
    linked.linker.forget("r")
    flip_a_bit([blob for blob in blobs(linkers.folder) if blob.match(f"p/*/{keys[7]}*")])  # no chunk
    assert linked.lookup(asked) == [4, 8]
    wait_until(lambda: linked.counted("miss_pages", "corrupt") > 0, "the damaged window to be read")
    wait_until(lambda: linked.lookup(asked) == [4], "a shorter answer")
    read(linked)
    assert linked.load([kv(keys[:4], range(9, 13)), side("swa", keys[2:4], slots([5, 6], PAGE))])


def test_what_finds_no_room_is_read_by_the_load(linkers: LinkerRig, keys: list[str]):
    page = make.mha().device.k_buffer[0][0].nbytes * PAGE * make.LAYERS * 2
    linked = stored(linkers, keys, linker={"read_ahead": 3 * page})
    written = rows(linked.kvcache, PAGES)
    fill(linked.kvcache, 2)
    assert linked.lookup([kv(keys)])[-1] == 8
    read(linked)
    assert (held(linked), linked.counted("read_ahead_left_out_pages")) == (3 * page, 5)
    assert linked.load([kv(keys, PAGES)])
    assert same(rows(linked.kvcache, PAGES), written)


def test_one_request_leaves_another_its_room(linkers: LinkerRig, keys: list[str]):
    page = make.mha().device.k_buffer[0][0].nbytes * PAGE * make.LAYERS * 2
    linked = stored(linkers, keys, linker={"read_ahead": 8 * page})
    for rid in ("one", "two"):
        assert linked.lookup([kv(keys)], rid=rid)[-1] == 8
    assert linked.counted("read_ahead_left_out_pages") == 8
    read(linked, "one")
    assert held(linked) == 8 * page
    assert linked.load([kv(keys, PAGES)], rid="one")
    linked.linker.reset()
    assert linked.lookup([kv(keys)], rid="two")[-1] == 8
    read(linked, "two")
    assert held(linked) == 8 * page


def test_room_of_those_who_never_came_back_is_taken(linkers: LinkerRig, keys: list[str]):
    page = make.mha().device.k_buffer[0][0].nbytes * PAGE * make.LAYERS * 2
    engine = {"exists_deadline": 30, "get_deadline": 0.05, "set_deadline": 30}
    linked = stored(linkers, keys, linker={"read_ahead": 8 * page}, engine=engine)
    assert linked.lookup([kv(keys)], rid="gone")[-1] == 8
    read(linked, "gone")

    def finds_room() -> bool:
        left_out = linked.counted("read_ahead_left_out_pages")
        linked.linker.forget("other")
        linked.lookup([kv(keys)], rid="other")
        return linked.counted("read_ahead_left_out_pages") == left_out

    wait_until(finds_room, "the room of a request that nobody asks for")


@pytest.mark.parametrize("way", [SgkvLinker.forget, SgkvLinker.cancel_queued_load])
def test_aborted_requests_give_their_memory_back(linkers: LinkerRig, keys: list[str], way: Any):
    linked = stored(linkers, keys)
    assert linked.lookup([kv(keys)])[-1] == 8
    read(linked)
    if way is SgkvLinker.cancel_queued_load:
        assert linked.linker.load("r", [kv(keys, PAGES)])
    way(linked.linker, "r")
    assert held(linked) == 0


def test_memory_under_a_read_is_not_free_before_it_has_ended(linkers: LinkerRig, keys: list[str]):
    linked = stored(linkers, keys, disk={"simulate": {"bandwidth": 128 << 10}})
    assert linked.lookup([kv(keys)])[-1] == 8
    linked.linker.forget("r")
    assert held(linked) > 0
    wait_until(lambda: held(linked) == 0, "the read to end")


def test_a_lookup_of_less_is_the_same_question(linkers: LinkerRig, keys: list[str]):
    """Cache-aware policies ask for a prompt with and without its last page, in every step."""
    linked = stored(linkers, keys)
    flip_a_bit(blobs(linkers.folder))
    assert linked.lookup([kv(keys)])[-1] == 8
    assert linked.lookup([kv(keys[:7])])[-1] == 7
    wait_until(lambda: linked.counted("miss_pages", "corrupt") == 2, "both chunks to be read")
    asked = linked.counted("lookup_pages", "hit")
    assert linked.linker.not_yet("r")
    for pages in (8, 7, 2, 8):
        assert linked.lookup([kv(keys[:pages])]) == [1, 2, 3][:pages]
    assert not linked.linker.not_yet("r")
    assert linked.counted("lookup_pages", "hit") == asked


def test_a_request_of_which_nothing_could_be_read_is_computed(linkers: LinkerRig, keys: list[str]):
    """SGLang's cache-aware policies look up twice a step: the second one must not begin all over."""
    engine = {"exists_deadline": 30, "get_deadline": 0.2, "set_deadline": 30}
    linked = stored(linkers, keys, disk={"simulate": {"bandwidth": 64 << 10}}, engine=engine)
    assert linked.lookup([kv(keys)])[-1] == 8
    wait_until(lambda: linked.counted("miss_pages", "timeout") >= 8, "the reads to give up")
    assert linked.linker.not_yet("r")
    assert linked.lookup([kv(keys)]) == []
    assert linked.lookup([kv(keys)]) == []
    assert not linked.linker.not_yet("r")
    wait_until(lambda: linked.lookup([kv(keys)]) != [], "another try")


def test_a_prompt_of_which_nothing_is_there_is_not_looked_up_in_every_step(
    linkers: LinkerRig, keys: list[str]
):
    linked = stored(linkers, keys)
    absent = chain(4, seed=77)
    misses = linked.counted("lookup_pages", "absent")
    for _ in range(20):
        assert linked.lookup([kv(absent)], rid="waiting") == []
    assert linked.counted("lookup_pages", "absent") == misses + 4
    assert linked.lookup([kv(absent[:2])], rid="waiting") == [], "nor is a part of it"
    assert linked.counted("lookup_pages", "absent") == misses + 4
    assert linked.lookup([kv(absent)], rid="another") == []
    assert linked.counted("lookup_pages", "absent") == misses + 8
    time.sleep(0.3)  # what is remembered is remembered for a moment
    linked.offload([kv(absent, range(1, 5))])
    assert linked.lookup([kv(absent)], rid="waiting")[-1] == 4
