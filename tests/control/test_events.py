"""What an engine's device holds, by its events: SGLang's own publisher and event types; vLLM's as they look
on the wire, for vLLM lives in another environment.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from sgkv.config.control import EngineEvents
from sgkv.control.events import Cleared, EngineCache, Removed, Stored, decode
from sgkv.control.listening import Listener
from sgkv.control.residency import Residency
from sgkv.counters import Counters
from sgkv.keys import hash_pages
from sgkv.testing.waiting import wait_until

PAGE = 64
TOKENS = [random.Random(7).randrange(32_000) for _ in range(8 * PAGE)]
PAGES = [bytes.fromhex(page)[:16] for page in hash_pages(TOKENS, PAGE)]
SECONDS = 10.0


def stored(first: int, last: int, size: int = PAGE, **details) -> Stored:
    """Blocks `first` to `last` of the prompt, in blocks of `size`, called by their numbers."""
    names = list(range(first + 1, last + 1))
    tokens = TOKENS[first * size : last * size]
    return Stored(names, first or None, tokens, size, **{"medium": "GPU", **details})


def held(cache: EngineCache, *events) -> list[bytes]:
    for _ in cache.apply(events):
        pass
    return cache.pages


def test_blocks_of_a_pages_size_are_pages() -> None:
    cache = EngineCache(PAGE)
    assert list(cache.apply([stored(0, 3)])) == [(page, True) for page in PAGES[:3]]
    assert list(cache.apply([stored(3, 4), stored(3, 4)])) == [(PAGES[3], True)]
    assert list(cache.apply([Removed([4, 99], "GPU")])) == [(PAGES[3], False)]
    assert list(cache.apply([Cleared()])) == [(page, False) for page in PAGES[:3]]


@pytest.mark.parametrize("cuts", [(32,), (1, 3, 5, 32), (4, 8, 31, 32)])
def test_pages_of_shorter_blocks_are_there_with_their_last_block(cuts: tuple[int, ...]) -> None:
    cache, first = EngineCache(PAGE), 0
    for last in cuts:
        assert held(cache, stored(first, last, 16)) == PAGES[: last // 4]
        first = last
    assert held(cache, Removed([7], "GPU")) == PAGES, "a page is told of by its last block alone"
    assert held(cache, Removed([8], "GPU")) == PAGES[:1] + PAGES[2:]


@pytest.mark.parametrize(
    "event",
    [
        stored(3, 4),
        stored(0, 2, medium="CPU_PINNED"),
        stored(0, 2, lora_id=1),
        stored(0, 2, cache_salt="a"),
        stored(0, 2, extra_keys=[("a",), None]),
        stored(0, 2, group_idx=1),
        stored(0, 2, size=48),
        Stored([1, 2], None, TOKENS[:PAGE], PAGE),
        Stored([1], None, [-1] * PAGE, PAGE),
        Removed([1], "CPU_PINNED"),
    ],
    ids=str,
)
def test_what_cannot_be_known_is_not_told(event) -> None:
    cache = EngineCache(PAGE)
    assert held(cache, event) == []
    assert held(cache, stored(0, 2), event) == PAGES[:2]


def test_there_is_an_end_to_what_is_followed() -> None:
    assert held(EngineCache(PAGE, most=3), stored(0, 8)) == PAGES[:3]


def test_the_events_of_vllm_are_understood() -> None:
    event = {"type": "BlockStored", "block_hashes": [b"x" * 32], "parent_block_hash": None}
    event |= {"token_ids": TOKENS[:PAGE], "block_size": PAGE, "lora_id": None, "medium": "GPU"}
    event |= {"lora_name": None, "group_idx": 0, "kv_cache_spec_kind": "full_attention"}
    batch = decode(msgspec.msgpack.encode([1.0, [event, {"type": "AllBlocksCleared"}], 0]))
    assert list(EngineCache(PAGE).apply(batch.events)) == [(PAGES[0], True), (PAGES[0], False)]


def test_more_than_fits_between_two_reports_asks_for_a_full_account() -> None:
    residency = Residency(PAGE, most=4)
    residency.apply([stored(0, 8)])
    assert residency.lost
    assert residency.account() == PAGES
    assert not residency.lost
    assert residency.take(10) == []
    residency.apply([Removed([8])])
    assert residency.take(10) == [(PAGES[7], False)]


@pytest.fixture
def end(tmp_path: Path) -> str:
    """Of a socket in the file system: no port is anybody's."""
    return f"ipc://{tmp_path}/kv"


@contextmanager
def publishing(end: str, replay: str | None = None) -> Iterator:
    from sglang.srt.disaggregation.kv_events import ZmqEventPublisher

    publisher = ZmqEventPublisher(0, end, replay, topic="kv", bind=True)
    try:
        yield publisher
    finally:
        publisher.shutdown()


def event(first: int, last: int):
    from sglang.srt.disaggregation.kv_events import BlockStored, KVEventBatch

    fields = msgspec.structs.asdict(stored(first, last))
    known = {name: fields[name] for name in BlockStored.__struct_fields__ if name in fields}
    return KVEventBatch(ts=0.0, events=[BlockStored(**known)])


@contextmanager
def listening(end: str, replay: str | None = None) -> Iterator[tuple[Residency, Counters]]:
    residency, counters = Residency(PAGE), Counters()
    source = EngineEvents(endpoint=end, replay=replay, topic="kv")
    with closing(Listener(source, residency, counters)):
        yield residency, counters


def wait_for(residency: Residency, pages: list[bytes]) -> None:
    wait_until(lambda: residency.account() == pages, f"{len(pages)} pages", SECONDS)


def subscribed(publisher, residency: Residency, first: int) -> int:
    """Publish until something arrives; how many blocks there are then."""
    for last in range(first + 1, len(PAGES)):
        publisher.publish(event(0, last))
        try:
            wait_until(lambda: bool(residency.account()), "an event", 0.3)
        except TimeoutError:
            continue
        return last
    raise AssertionError("nothing was heard")


def test_a_publisher_that_replays_is_followed_from_its_beginning(end: str) -> None:
    with publishing(end, f"{end}.replay") as publisher:
        publisher.publish(event(0, 2))
        with listening(end, f"{end}.replay") as (residency, counters):
            last = subscribed(publisher, residency, 2)
            wait_for(residency, PAGES[:last])
            assert counters.get("engine_events_missed") == 0


def test_without_a_replay_what_was_missed_is_not_made_up(end: str) -> None:
    with listening(end) as (residency, counters), publishing(end) as publisher:
        heard = subscribed(publisher, residency, 0)
        wait_for(residency, PAGES[:heard])
        publisher._seq_gen = iter(range(heard + 5, 100))  # SGLang's own count: five batches are lost
        publisher.publish(event(6, 7))
        wait_for(residency, [])
        assert counters.get("engine_events_missed") >= 5


def test_an_engine_that_begins_anew_has_nothing(end: str) -> None:
    with listening(end) as (residency, _):
        with publishing(end) as publisher:
            last = subscribed(publisher, residency, 0)
            publisher.publish(event(last, last + 1))
            wait_for(residency, PAGES[: last + 1])
        with publishing(end) as publisher:

            def published() -> bool:
                publisher.publish(event(0, 1))
                return residency.account() == PAGES[:1]

            wait_until(published, "one page and no other", SECONDS)


def test_noise_is_refused_and_listening_goes_on(end: str) -> None:
    with listening(end) as (residency, counters), publishing(end) as publisher:
        last = subscribed(publisher, residency, 0)
        missed = counters.get("engine_events_missed")
        noise = event(0, 1)
        noise.events = ["noise"]
        publisher.publish(noise)
        wait_until(lambda: counters.get("engine_events_missed") > missed, "the noise", SECONDS)
        assert residency.account() == []
        publisher.publish(event(0, last))
        wait_for(residency, PAGES[:last])
