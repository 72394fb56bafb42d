"""A real engine over a real server of keys: restored from it, right without it, restored again."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from sgkv.backends.valkey import ValkeyBackend
from sgkv.testing.client import Generation
from sgkv.testing.valkey import ValkeyServer
from sgkv.testing.waiting import wait_until
from tests.e2e.rig import PATIENT, Settings, assert_same, over, prompt
from tests.e2e.served import Served

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with ValkeyServer(tmp_path_factory.mktemp("keys")) as server:
        yield server


def tier(keys: ValkeyServer) -> Settings:
    breaker = {"cooldown": 0.1, "max_cooldown": 0.1}
    return {"type": "valkey", "address": keys.options.address, "deadlines": PATIENT, "breaker": breaker}


def cold(llama: Served, keys: ValkeyServer, ids: list[int]) -> Generation:
    """The answer to a prompt nobody has stored, whose pages are on the server afterwards."""
    answer = llama.again(ids)
    assert answer.cached_tokens == 0
    with closing(ValkeyBackend(keys.options)) as reader:
        wait_until(
            lambda: sum(info.size for info in reader.scan()) >= llama.stored_bytes(ids), "pages on the server"
        )
    return answer


def test_an_engine_is_restored_whenever_its_server_is_there(llama: Served, keys: ValkeyServer):
    llama.attach(over(tier(keys)))
    ids = prompt(9101)
    first = cold(llama, keys, ids)
    with llama.counting("hit_pages", "tier") as hits:
        llama.assert_restored(llama.again(ids), first, ids)
    assert set(hits) == {"valkey"}

    keys.kill()
    with llama.unserved() as reasons:
        assert_same(llama.again(ids), first)
    assert set(reasons) <= {"tier_error", "breaker_open"}
    assert reasons

    keys.start()
    again = prompt(9102)
    second = cold(llama, keys, again)
    llama.assert_restored(llama.again(again), second, again)
