"""SGLang's own P/D over Mooncake's Transfer Engine, with one sgkv store for both sides.

A prefill server with HiCache stores the prompt; the decode server, which computes the answer, stores that. So
the second turn of a conversation is read from storage by the prefill server.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import NamedTuple

import pytest

from sgkv.demo.engine import empty_store
from sgkv.keys import hash_pages
from sgkv.testing.client import Generation
from sgkv.testing.models import write_model
from sgkv.testing.server import SglangServer, free_port
from tests.e2e.rig import Folder, Settings, assert_same, prompt, settings

pytestmark = [pytest.mark.server, pytest.mark.slow]

PAGE, CHUNK_PAGES = 64, 4
PROMPT, ANSWER = 520, 260
"""Tokens. The prompt has two whole chunks and 8 tokens; with these, the answer completes a third."""
TOKEN_BYTES = 2048


class Pair(NamedTuple):
    """A prefill and a decode server."""

    prefill: SglangServer
    decode: SglangServer
    bootstrap: int
    rooms: Iterator[int]

    def generate(self, ids: Sequence[int], tokens: int) -> tuple[Generation, Generation]:
        """As a router would: the same request to both; the answer is the second's."""
        request = {
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": self.bootstrap,
            "bootstrap_room": next(self.rooms),
        }
        with ThreadPoolExecutor(2) as both:
            answers = [
                both.submit(server.generate, ids, tokens, **request) for server in (self.prefill, self.decode)
            ]
            prefilled, decoded = (answer.result() for answer in answers)
        return prefilled, decoded


def patient(folder: Folder) -> Settings:
    """Pages wait for the rest of their chunk, however slowly a busy machine decodes."""
    return {**settings(folder), "write_behind": {"tail_delay": 300}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, folder: Folder) -> Iterator[Pair]:
    base, bootstrap = tmp_path_factory.mktemp("pair"), free_port()
    model = write_model(base / "model", "llama")
    env = {"SGLANG_HOST_IP": "127.0.0.1", "MC_FORCE_TCP": "1", "MC_TCP_BIND_ADDRESS": "127.0.0.1"}

    def server(mode: str, *args: str) -> SglangServer:
        transfer = ["--disaggregation-transfer-backend", "mooncake_tcp"]
        transfer += ["--disaggregation-bootstrap-port", str(bootstrap)]
        store = ["--hicache-storage-backend", "sgkv", "--hicache-mem-layout", "page_first"]
        store += ["--hicache-storage-prefetch-policy", "wait_complete"]
        store += ["--hicache-storage-backend-extra-config", json.dumps(patient(folder))]
        mode_args = ["--disaggregation-mode", mode, *transfer, *store, *args]
        return SglangServer(model, log_path=base / f"{mode}.log", env=env, extra_args=mode_args)

    prefill, decode = server("prefill"), server("decode", "--disaggregation-decode-enable-offload-kvcache")
    with ExitStack() as stack, ThreadPoolExecutor(2) as starting:
        for each in (prefill, decode):
            stack.callback(each.kill)
        list(starting.map(SglangServer.start, (prefill, decode)))
        yield Pair(prefill, decode, bootstrap, count(1))


def test_the_second_turn_is_read_from_what_both_stored(pair: Pair, folder: Folder):
    ids = prompt(7, PROMPT)
    prefilled, first = pair.generate(ids, ANSWER)
    assert prefilled.cached_tokens == 0
    turn = [*ids, *first.output_ids]
    stored = (len(turn) - 1) // PAGE * PAGE
    folder.wait_for_size(stored * TOKEN_BYTES)
    hashes = hash_pages(turn[:stored], PAGE)
    assert {path.name for path in folder.blobs()} == set(hashes[CHUNK_PAGES - 1 :: CHUNK_PAGES])
    pair.prefill.flush()
    again, second = pair.generate(turn, 8)
    assert again.cached_tokens == again.cached_by_tier.get("storage", 0) == stored
    empty_store(pair.prefill)
    pair.prefill.flush()
    cold, reference = pair.generate(turn, 8)
    assert cold.cached_tokens == 0
    assert_same(second, reference)
