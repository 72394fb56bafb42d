"""Stores that report to a real controller, and do what it says: over memory, a disk and a Valkey server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from sgkv.backends.base import PutItem, Status
from sgkv.backends.cpu import CpuBackend
from sgkv.config import load, resolve
from sgkv.control.agent import Agent
from sgkv.control.client import ControlError
from sgkv.control.desk import Desk
from sgkv.control.models import ClearWish, CompressWish, Lookup, MoveWish, PinWish, PrefetchWish, Prompt
from sgkv.control.registry import Registry
from sgkv.control.serving import Listening, in_background, make_server
from sgkv.store.build import open_store
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier
from sgkv.testing.valkey import ValkeyServer
from sgkv.testing.waiting import wait_until
from tests.control.conftest import LIMITS, Controller, serving, token_of, tokens
from tests.store.conftest import (
    chain,
    found_in,
    joined,
    layout,
    namespace,
    put,
    random_pages,
    read,
)

DIGEST = namespace().digest
SECONDS = 20.0


@pytest.fixture(scope="module")
def fleet() -> Iterator[Controller]:
    with serving(stale_after=600.0) as controller:
        yield controller


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with ValkeyServer(tmp_path_factory.mktemp("valkey")) as running:
        yield running


@pytest.fixture
def opened(fleet: Controller, bucket: ValkeyServer, tmp_path) -> Iterator[Callable[..., Store]]:
    """Stores by the names they report under, each with its own disk; the Valkey server is all's."""
    stores: list[Store] = []

    def opener(name: str, *, shared: bool = False, cpu: str = "1MiB", url: str = fleet.url) -> Store:
        tiers = [
            {"type": "cpu", "capacity": cpu},
            {"type": "disk", "path": str(tmp_path / name), "capacity": "16MiB", "min_free": 0},
        ]
        if shared:
            tiers.append({"type": "valkey", "address": bucket.options.address, "prefix": f"{tmp_path.name}/"})
        control = {"url": url, "token": token_of("agent"), "instance": name, "every": 0.05}
        settings = {"chunk_tokens": 64, "tiers": tiers, "control": control}
        stores.append(open_store(resolve(load(settings, environ={}).config)))
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


def devices(fleet: Controller, name: str, hashes: list[str]) -> dict[str, int]:
    if DIGEST not in {one.digest for one in fleet["operator"].namespaces()}:
        return {}
    view = fleet["operator"].lookup(Lookup(namespace=DIGEST, hashes=tuple(hashes)))
    return next((one.devices for one in view.matches if one.instance == name), {})


def wait_for(fleet: Controller, name: str, hashes: list[str], expected: dict[str, int]) -> None:
    wait_until(lambda: devices(fleet, name, hashes) == expected, f"{name} to have {expected}", SECONDS)


def ended(fleet: Controller, id_: str) -> str:
    wait_until(lambda: fleet["reader"].operation(id_).state != "running", "the operation to end", SECONDS)
    view = fleet["reader"].operation(id_)
    return f"{view.state} {view.why}".strip()


def test_what_a_store_writes_and_loses_is_known(fleet, opened) -> None:
    store = opened("writer")
    session, hashes = store.open(namespace(), layout()), chain(10, 1)
    assert all(put(session, hashes, random_pages(10)))
    assert store.flush(SECONDS)
    wait_for(fleet, "writer", hashes, {"cpu": 10, "disk": 10})
    for seed in range(2, 30):  # more than memory holds, and less than the disk does
        assert all(put(session, chain(10, seed), random_pages(10)))
    assert store.flush(SECONDS)
    wait_for(fleet, "writer", hashes, {"disk": 10})
    session.clear()
    wait_for(fleet, "writer", hashes, {})


def test_what_an_earlier_process_left_is_known(fleet, opened) -> None:
    hashes = chain(8, 40)
    with closing(opened("restarted")) as store:
        assert all(put(store.open(namespace(), layout()), hashes, random_pages(8)))
        assert store.flush(SECONDS)
    store = opened("restarted")
    session = store.open(namespace(), layout())
    wait_for(fleet, "restarted", hashes, {"disk": 8})
    assert session.namespace.tenant == "t"


def test_a_prompt_is_pinned_fetched_and_cleared(fleet, opened) -> None:
    store = opened("obedient")
    session, hashes, pages = store.open(namespace(), layout()), chain(8, 50), random_pages(8)
    assert all(put(session, hashes, pages))
    assert store.flush(SECONDS)
    wait_for(fleet, "obedient", hashes, {"cpu": 8, "disk": 8})
    prompt = {"namespace": DIGEST, "hashes": tuple(hashes)}
    pin = fleet["operator"].pin(PinWish(**prompt, seconds=60, instances=("obedient",)))
    assert ended(fleet, pin.operation) == "done"
    for seed in range(51, 80):
        put(session, chain(10, seed), random_pages(10))
    assert store.flush(SECONDS)
    wait_for(fleet, "obedient", hashes, {"cpu": 8, "disk": 8})
    assert ended(fleet, fleet["operator"].unpin(pin.id).id) == "done"
    for seed in range(80, 110):
        put(session, chain(10, seed), random_pages(10))
    wait_for(fleet, "obedient", hashes, {"disk": 8})
    fetched = fleet["operator"].prefetch(PrefetchWish(**prompt, instance="obedient"))
    assert ended(fleet, fetched.id) == "done"
    wait_for(fleet, "obedient", hashes, {"cpu": 8, "disk": 8})
    cleared = fleet["operator"].clear(ClearWish(prompt=Prompt(**prompt), instance="obedient"))
    assert ended(fleet, cleared.id) == "done"
    assert found_in(session, hashes).pages == 0
    missing = fleet["operator"].prefetch(PrefetchWish(**prompt, instance="obedient"))
    assert ended(fleet, missing.id) == "failed 0 of 8 pages are in its tiers"


def test_what_a_disk_has_is_compressed_and_made_what_it_was_again(fleet, opened, tmp_path) -> None:
    store = opened("dense")
    session, hashes = store.open(namespace(), layout()), chain(8, 300)
    pages = [[memoryview(bytearray(layout().page_bytes))] for _ in hashes]
    assert all(put(session, hashes, pages))
    assert store.flush(SECONDS)
    wait_for(fleet, "dense", hashes, {"cpu": 8, "disk": 8})

    def stored() -> int:
        return sum(
            path.stat().st_size for path in (tmp_path / "dense" / "blobs").rglob("*") if path.is_file()
        )

    before, told = stored(), {"namespace": DIGEST, "instance": "dense"}
    for wish in (CompressWish(**told, hashes=tuple(hashes)), CompressWish(**told, method="lz4")):
        assert ended(fleet, fleet["admin"].compress(wish).id) == "done"
        assert stored() < before / 2
    wait_for(fleet, "dense", hashes, {"cpu": 8, "disk": 8})
    assert ended(fleet, fleet["admin"].compress(CompressWish(**told, method="none")).id) == "done"
    assert stored() == before
    nowhere = fleet["admin"].compress(CompressWish(**told, device="remote"))
    assert ended(fleet, nowhere.id) == "failed there is no tier of the kind remote that has a codec"
    with pytest.raises(ControlError, match="admin"):
        fleet["operator"].compress(CompressWish(**told))


def test_a_prompt_moves_over_the_shared_tier(fleet, opened) -> None:
    hashes, pages = chain(8, 120), random_pages(8)
    source, target = opened("source", shared=True), opened("target", shared=True)
    giving, taking = source.open(namespace(), layout()), target.open(namespace(), layout())
    assert all(put(giving, hashes, pages))
    assert source.flush(SECONDS)
    wait_for(fleet, "source", hashes, {"cpu": 8, "disk": 8})
    wait_until(lambda: any(one.name == "target" for one in fleet["reader"].instances()), "target", SECONDS)
    wish = MoveWish(namespace=DIGEST, hashes=tuple(hashes), source="source", target="target")
    assert ended(fleet, fleet["operator"].move(wish).id) == "done"
    wait_for(fleet, "target", hashes, {"cpu": 8})
    wait_for(fleet, "source", hashes, {})
    reasons, got = read(taking, hashes)
    assert reasons == [None] * 8
    assert got == joined(pages)


def test_engines_do_not_notice_that_the_controller_is_away_and_it_knows_all_once_it_is_back(opened) -> None:
    hashes = chain(8, 130)
    listening = Listening(port=0)
    with in_background(make_server(tokens(), listening, LIMITS, Desk(Registry()))) as url:
        store = opened("patient", url=url)
        session = store.open(namespace(), layout())
        controller = Controller(url, Desk(Registry()))
        assert all(put(session, hashes[:4], random_pages(4)))
        wait_until(lambda: devices(controller, "patient", hashes).get("cpu") == 4, "a report", SECONDS)
        port = int(url.rpartition(":")[2])
    began = time.monotonic()
    assert all(put(session, hashes[4:], random_pages(4), before=hashes[:4]))
    assert found_in(session, hashes).pages == 8
    assert time.monotonic() - began < 2
    with in_background(make_server(tokens(), Listening(port=port), LIMITS, Desk(Registry()))) as url:
        again = Controller(url, Desk(Registry()))  # it has forgotten everything
        wait_until(lambda: devices(again, "patient", hashes).get("cpu") == 8, "a full account", SECONDS)


def test_a_journal_that_was_too_small_is_made_up_for(fleet, opened) -> None:
    cpu = CpuBackend(8 << 20, prefault=False)
    store = Store([Tier("cpu", cpu, arena=cpu)], StoreOptions(chunk_tokens=64))
    session, hashes = store.open(namespace(), layout()), chain(100, 140)
    agent = Agent(store, fleet.url, token_of("agent"), "small", every=0.05, journal=10)
    store.before_closing(agent.close)
    wait_until(lambda: any(one.name == "small" for one in fleet["reader"].instances()), "small", SECONDS)
    assert all(put(session, hashes, random_pages(100)))
    wait_for(fleet, "small", hashes, {"cpu": 100})
    store.close()


def test_a_store_is_closed_at_once_whatever_the_controller_does(opened) -> None:
    store = opened("lonely", url="http://127.0.0.1:1")
    session = store.open(namespace(), layout())
    assert all(put(session, chain(4, 150), random_pages(4)))
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < 5


def test_a_watcher_hears_of_every_key_that_comes_and_goes() -> None:
    cpu = CpuBackend(1 << 20, prefault=False)
    data = memoryview(bytes(4096))
    assert cpu.put([PutItem("g/before", [data])]) == [Status.OK]
    heard: list[tuple[str, bool]] = []
    assert cpu.watch(lambda key, came: heard.append((key, came))) == ["g/before"]
    cpu.put([PutItem("g/a", [data]), PutItem("g/b", [data])])
    cpu.put([PutItem("g/a", [data])])
    cpu.delete(["g/a", "g/never"])
    cpu.delete_prefix("g/")
    assert heard[:3] == [("g/a", True), ("g/b", True), ("g/a", False)]
    assert sorted(heard[3:]) == [("g/b", False), ("g/before", False)]
    cpu.close()
