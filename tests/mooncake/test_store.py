"""The tier in a store, as the configuration builds it."""

from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pytest

from sgkv.config import load, resolve
from sgkv.store.build import build_store
from sgkv.store.store import Store
from tests.backends.blobs import blob, key_of, put_item
from tests.mooncake.pool import MIB, Pool
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

pytestmark = pytest.mark.slow

CPU = {"type": "cpu", "capacity": "8MiB"}
PAGES = 22


def build(pool: Pool, *above: dict[str, object], **tier: object) -> Store:
    """A patient store over `above` and the pool."""
    deadlines = {"contains": 20, "get": 30, "put": 30}
    mooncake = {"type": "mooncake", "master": pool.master.address, "admin": pool.master.admin.url}
    tiers = [*above, {**mooncake, "deadlines": deadlines, **tier}]
    return build_store(resolve(load({"chunk_tokens": 64, "tiers": tiers}, environ={}).config))


@pytest.fixture
def tenant() -> str:
    """Of this test alone: the pool is the module's."""
    return uuid4().hex


@pytest.fixture(params=[(CPU,), ()], ids=["cpu+mooncake", "mooncake"])
def store(pool: Pool, request: pytest.FixtureRequest) -> Iterator[Store]:
    with closing(build(pool, *request.param)) as store:
        yield store


def test_another_process_finds_and_reads_what_this_one_set(pool: Pool, store: Store, tenant: str):
    hashes, pages = chain(PAGES), random_pages(PAGES)
    assert all(put(store.open(namespace(tenant=tenant), layout()), hashes, pages))
    assert store.flush(20)
    with closing(build(pool)) as other:
        session = other.open(namespace(tenant=tenant), layout())
        assert found_in(session, hashes).pages == PAGES
        assert read(session, hashes) == ([None] * PAGES, joined(pages))


def test_what_is_in_the_arena_goes_without_a_copy(pool: Pool, tenant: str):
    with closing(build(pool, CPU)) as store:
        put(store.open(namespace(tenant=tenant), layout()), chain(16), random_pages(16))
        assert store.flush(20)
        counters = store.stats().tiers["mooncake"].counters
    assert counters["put_direct_bytes"] == 16 * layout().page_bytes
    assert counters["put_copied_bytes"] == 4 * 4096  # the headers of four chunks


def test_an_engine_can_name_the_memory_that_pages_come_from(pool: Pool, tenant: str):
    with closing(build(pool)) as store:
        memory = memoryview(bytearray(4 * layout().page_bytes))
        store.register_memory(memory)
        pages = [[memory[at : at + layout().page_bytes]] for at in range(0, len(memory), layout().page_bytes)]
        put(store.open(namespace(tenant=tenant), layout()), chain(4), pages)
        counters = store.stats().tiers["mooncake"].counters
    assert counters["put_direct_bytes"] == len(memory)


def test_clearing_one_tenant_leaves_the_others(pool: Pool, store: Store):
    hashes, pages = chain(8), random_pages(8)
    mine, theirs = (store.open(namespace(tenant=uuid4().hex), layout()) for _ in range(2))
    for session in (mine, theirs):
        put(session, hashes, pages)
    assert store.flush(20)
    mine.clear()
    assert (found_in(mine, hashes).pages, found_in(theirs, hashes).pages) == (0, 8)
    assert read(theirs, hashes)[1] == joined(pages)


def test_a_damaged_chunk_is_a_miss_and_is_replaced(pool: Pool, tenant: str):
    """Of the same key: someone else's bytes, as a node that hung and came back may leave them."""
    hashes, pages = chain(4), random_pages(4)
    with closing(build(pool)) as store:
        session = store.open(namespace(tenant=tenant), layout())
        put(session, hashes, pages)
        (stored,) = store.tiers[0].backend.scan(f"{namespace(tenant=tenant).digest}/")
        raw = pool.open()
        assert raw.delete([stored.key]) == [True]
        assert raw.put([put_item(stored.key, blob(stored.size))])[0].ok
        reasons, _ = read(session, hashes)
        assert None not in reasons
        assert raw.contains([stored.key]) == [False]
        assert all(put(session, hashes, pages))
        assert read(session, hashes)[1] == joined(pages)


@pytest.mark.parametrize(
    "options",
    [{"replicas": 2}, {"pin": "soft"}, {"pin": "hard"}, {"preferred_segment": "nowhere:1"}],
    ids=str,
)
def test_wishes_about_placement(pool: Pool, tenant: str, options: dict[str, object]):
    with closing(build(pool, **options)) as store:
        session = store.open(namespace(tenant=tenant), layout())
        put(session, chain(4), pages := random_pages(4))
        assert read(session, chain(4)) == ([None] * 4, joined(pages))


def test_a_server_that_gives_memory(own_pool: Pool, tenant: str):
    own_pool.start(node_bytes=0)
    with closing(build(own_pool, segment=16 * MIB)) as giver, closing(build(own_pool)) as other:
        put(giver.open(namespace(tenant=tenant), layout()), chain(4), pages := random_pages(4))
        session = other.open(namespace(tenant=tenant), layout())
        assert read(session, chain(4)) == ([None] * 4, joined(pages))


def test_without_a_node_there_is_no_room_and_no_harm(own_pool: Pool, tenant: str):
    own_pool.start(node_bytes=0)
    with closing(build(own_pool)) as store:
        session = store.open(namespace(tenant=tenant), layout())
        assert not any(put(session, chain(4), random_pages(4)))
        assert found_in(session, chain(4)).pages == 0
        assert None not in read(session, chain(4))[0]


def test_tenants_of_a_master_that_keeps_them_apart(own_pool: Pool):
    quotas = own_pool.folder / "quotas.yaml"
    quotas.write_text("version: 1\ntenants: [{name: one, quota: 64MB}, {name: two, quota: 64MB}]\n")
    own_pool.start(flags=["-enable_multi_tenants=true", f"-tenant_quota_connector_uri={quotas}"])
    one, two = (own_pool.open(tenant=name) for name in ("one", "two"))
    assert one.put([put_item(key_of(1), b"of one")])[0].ok
    assert (one.contains([key_of(1)]), two.contains([key_of(1)])) == ([True], [False])
    assert own_pool.master.admin.tenants_isolated()
