"""What tiers hold, as SGLang's own event types and a plain subscriber read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import zmq

from sgkv.config import ConfigError, load, resolve
from sgkv.config.control import Publishing
from sgkv.control.places import Device
from sgkv.control.publishing import Publisher, events
from sgkv.control.wire import Change
from sgkv.counters import Counters
from sgkv.store.build import open_store
from sgkv.store.members import ChunkMembers
from sgkv.testing.waiting import wait_until
from tests.control.conftest import LIMITS, Controller, serving, token_of
from tests.store.conftest import chain, layout, namespace, put, random_pages

PAGE = 16
SECONDS = 15.0


@pytest.fixture
def end(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/kv"


@pytest.fixture(scope="module")
def fleet() -> Iterator[Controller]:
    with serving(LIMITS, stale_after=600.0) as controller:
        yield controller


class Subscriber:
    """Any router's side."""

    def __init__(self, end: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.subscribe("kv")
        self._socket.connect(end)
        self._asking = self._context.socket(zmq.DEALER)
        self._asking.connect(f"{end}.replay")

    def replayed(self, first: int = 0) -> list:
        from sglang.srt.disaggregation.kv_events import KVEventBatch

        self._asking.send_multipart([b"", first.to_bytes(8, "big")])
        found = []
        while self._asking.poll(1000 * SECONDS):
            *_, number, payload = self._asking.recv_multipart()
            if int.from_bytes(number, "big", signed=True) < 0:
                return found
            batch = msgspec.msgpack.decode(payload, type=KVEventBatch)
            found += [(int.from_bytes(number, "big"), event) for event in batch.events]
        raise TimeoutError

    def next(self) -> list:
        assert self._socket.poll(1000 * SECONDS)
        topic, number, _ = self._socket.recv_multipart()
        return [topic, int.from_bytes(number, "big")]

    def close(self) -> None:
        self._context.destroy(linger=0)


def block(page_hash: str) -> int:
    return int.from_bytes(bytes.fromhex(page_hash)[:8], "big", signed=True)


def change(hashes: list[str], *, came: bool = True, kind: str = "p", device: Device = Device.DISK) -> Change:
    return Change("n" * 32, kind, device, came, b"".join(bytes.fromhex(one)[:16] for one in hashes))


def test_pages_and_chunks_become_blocks_and_the_engines_own_device_does_not() -> None:
    hashes, members = chain(8, 1), ChunkMembers()
    members.note(hashes[:4])
    told = [
        change(hashes[3:4], kind="c"),
        change(hashes[7:], kind="c", device=Device.REMOTE),
        change(hashes[:2], came=False, device=Device.CPU),
        change(hashes, device=Device.GPU),
    ]
    stored, unknown, removed = events(told, members, PAGE)
    assert stored["block_hashes"] == [block(one) for one in hashes[:4]]
    assert (stored["medium"], stored["block_size"]) == ("DISK", PAGE)
    assert (unknown["medium"], unknown["block_hashes"]) == ("EXTERNAL", [block(hashes[7])])
    assert (removed["type"], removed["medium"]) == ("BlockRemoved", "CPU_PINNED")


def test_there_is_an_end_to_the_chunks_that_are_known() -> None:
    members = ChunkMembers(most=1)
    members.note(chain(4, 1))
    members.note(chain(4, 2))
    last = bytes.fromhex(chain(4, 1)[-1])[:16]
    assert members.pages(last) == (last,)


def test_who_missed_some_can_ask_again(end: str) -> None:
    config = Publishing(endpoint=end, replay=f"{end}.replay", topic="kv")
    with closing(Publisher(config, Counters())) as publisher, closing(Subscriber(end)) as router:
        for seed in range(3):
            publisher.publish(list(events([change(chain(2, seed))], ChunkMembers(), PAGE)))
        publisher.publish([])
        found = router.replayed(1)
        assert [number for number, _ in found] == [1, 2]
        assert [event.block_hashes for _, event in found] == [
            [block(one) for one in chain(2, n)] for n in (1, 2)
        ]


def test_what_is_dropped_leaves_a_gap_in_the_numbers(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgkv.control.publishing._WAITING", 1)
    config, counters = Publishing(endpoint=end, replay=f"{end}.replay", topic="kv"), Counters()
    told = list(events([change(chain(1, 1))], ChunkMembers(), PAGE))
    with closing(Publisher(config, counters)) as publisher, closing(Subscriber(end)) as router:
        published = 0
        while counters.get("event_batches_dropped") < 3 and published < 9000:
            publisher.publish(told)
            published += 1
        wait_until(lambda: len(router.replayed()) == published - 3, "what was not dropped", SECONDS)
        publisher.publish(told)
        wait_until(lambda: router.replayed(published) != [], "what came after it", SECONDS)
        assert [number for number, _ in router.replayed(published)] == [published]


def test_an_endpoint_that_is_taken_is_refused(end: str) -> None:
    elsewhere = "tcp://256.0.0.1:1"
    with pytest.raises(OSError, match="cannot be published"):
        Publisher(Publishing(endpoint=elsewhere), Counters())
    control = {"url": "http://127.0.0.1:9", "token": token_of("agent"), "publish": {"endpoint": elsewhere}}
    settings = {"tiers": [{"type": "cpu", "capacity": "1MiB"}], "control": control}
    with pytest.raises(ConfigError, match=r"control\.publish"):
        open_store(resolve(load(settings, environ={}).config))


def test_what_a_store_holds_reaches_routers(fleet: Controller, end: str, tmp_path: Path) -> None:
    publish = {"endpoint": end, "replay": f"{end}.replay", "topic": "kv"}
    control = {
        "url": fleet.url,
        "token": token_of("agent"),
        "instance": "p",
        "every": 0.05,
        "publish": publish,
    }
    disk = {"type": "disk", "path": str(tmp_path / "disk"), "capacity": "16MiB", "min_free": 0}
    settings = {"chunk_tokens": 64, "tiers": [{"type": "cpu", "capacity": "1MiB"}, disk], "control": control}
    store = open_store(resolve(load(settings, environ={}).config))
    with closing(store), closing(Subscriber(end)) as router:
        session, hashes = store.open(namespace(), layout()), chain(10, 1)
        assert all(put(session, hashes, random_pages(10)))
        assert store.flush(SECONDS)
        blocks: dict[str, set[int]] = {}
        for _ in range(100):
            blocks = {}
            for _, event in router.replayed():
                blocks.setdefault(event.medium, set()).update(event.block_hashes)
            if len(blocks.get("DISK", ())) == 10:
                break
            router._socket.poll(100)
        everything = {block(one) for one in hashes}
        assert blocks == {"CPU_PINNED": everything, "DISK": everything}
