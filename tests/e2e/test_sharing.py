"""Several servers, or tenants of one, over one folder at once: who may read whose pages."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from sgkv.sglang.launch import DYNAMIC
from tests.e2e.restored import serving
from tests.e2e.rig import Folder, assert_same, prompt, settings
from tests.e2e.served import MakeServer, Served

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def other(make_server: MakeServer, shared_folder: Folder, llama: Served) -> Iterator[Served]:
    """A second server of the same model, with another byte order and without sgkv's plugin."""
    server = make_server(
        "llama",
        layout="layer_first",
        storage="dynamic",
        storage_config={**DYNAMIC, **settings(shared_folder)},
        env={"SGLANG_PLUGINS": "sgkv_cpu"},
    )
    with server:
        yield Served(server, shared_folder)
        server.kill()


class TestTwoServersOfOneModel:
    def test_one_reads_what_the_other_wrote_in_its_own_order(self, llama: Served, other: Served):
        other.assert_restored(other.again(llama.first_ids), llama.first, llama.first_ids)

    def test_and_the_other_way_round(self, llama: Served, other: Served):
        llama.attach(settings(llama.folder))
        ids = prompt(10)
        cold = other.cold(ids)
        llama.assert_restored(llama.again(ids), cold, ids)

    def test_both_write_the_same_prompts_at_once(self, llama: Served, other: Served):
        llama.attach(settings(llama.folder))
        prompts = [prompt(seed) for seed in range(20, 24)]
        before = llama.folder.size()
        with ThreadPoolExecutor(8) as clients:
            answers = [[clients.submit(who.generate, ids) for who in (llama, other)] for ids in prompts]
        llama.folder.wait_for_size(before + len(prompts) * llama.stored_bytes(prompts[0]))
        for who in (llama, other):
            who.attach(settings(llama.folder, cpu=False))
            for ids, (one, two) in zip(prompts, answers, strict=True):
                assert_same(one.result(), two.result())
                who.assert_restored(who.generate(ids), one.result(), ids)
        assert not llama.folder.quarantined()

    def test_the_plugin_is_not_needed(self, other: Served):
        assert "sgkv: --hicache-storage-backend sgkv set" not in other.server.log_text()


def test_another_kv_dtype_never_hits(
    make_server: MakeServer, shared_folder: Folder, llama: Served, tmp_path: Path
):
    """Its store comes from a file, which the plugin has to read before SGLang does."""
    (tmp_path / "store.yaml").write_text(yaml.safe_dump(settings(shared_folder)))
    config = ["--hicache-storage-backend-extra-config", f"@{tmp_path / 'store.yaml'}"]
    with serving(
        make_server("llama", dtype="bfloat16", extra_args=config), shared_folder, token_bytes=1024
    ) as half:
        half.assert_restored(half.again(half.first_ids), half.first, half.first_ids)
        assert half.first.logprobs != pytest.approx(llama.first.logprobs, abs=1e-5)


def test_another_salt_never_hits(llama: Served):
    llama.attach(settings(llama.folder))
    ids = prompt(11)
    cold = llama.cold(ids, cache_salt="one")
    llama.assert_restored(llama.again(ids, cache_salt="one"), cold, ids)
    for salt in ({"cache_salt": "two"}, {}):
        answer = llama.again(ids, **salt)
        assert answer.cached_tokens == 0
        assert_same(answer, cold)


def test_another_tenant_never_hits(llama: Served):
    llama.attach({**settings(llama.folder), "tenant": "somebody-else"})
    answer = llama.again(llama.first_ids)
    assert answer.cached_tokens == 0
    assert_same(answer, llama.first)


def test_log_probabilities_tell_prefixes_apart(llama: Served):
    """What all comparisons here rest on: KV of another prefix would show."""
    llama.attach(settings(llama.folder))
    other = llama.again([*prompt(12)[:1984], *llama.first_ids[1984:]])
    assert other.logprobs != pytest.approx(llama.first.logprobs, abs=1e-2)
