"""Weights that change under a running server: old KV is never served with new weights."""

from collections.abc import Iterator

import pytest

from tests.e2e.restored import serving
from tests.e2e.rig import Folder, assert_same, full_tokens, prompt, settings
from tests.e2e.served import MakeServer, Models, Served

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def served(make_server: MakeServer, shared_folder: Folder, llama: Served) -> Iterator[Served]:
    """A server of weights B; `llama` has stored the same prompt in the same folder with weights A."""
    server = make_server("llama", seed=2, storage_config=settings(shared_folder))
    with serving(server, shared_folder) as served:
        yield served


@pytest.fixture
def weights_b(served: Served, models: Models) -> Served:
    served.server.update_weights(str(models("llama", 2)))
    return served


def test_other_weights_of_the_same_shape_never_hit(served: Served, llama: Served):
    assert served.first.cached_tokens == 0
    assert served.first.logprobs != pytest.approx(llama.first.logprobs, abs=1e-2)


def test_after_an_update_answers_are_the_new_models(weights_b: Served, models: Models, llama: Served):
    ids = llama.first_ids
    weights_b.generate(ids)
    before = weights_b.folder.size()
    weights_b.server.update_weights(str(models("llama", 1)), weight_version="a")
    answer = weights_b.generate(ids)
    assert answer.cached_tokens == 0
    assert_same(answer, llama.first)
    weights_b.folder.wait_for_size(before + weights_b.stored_bytes(ids))
    weights_b.assert_restored(weights_b.again(ids), llama.first, ids)


def test_without_a_flush_the_store_stays_off_until_there_is_one(weights_b: Served, models: Models):
    ids = prompt(30)
    weights_b.server.update_weights(str(models("llama", 1)), flush_cache=False)
    with weights_b.counting("lookup_pages", "result") as looked_up:
        unstored = weights_b.generate(ids)
    assert looked_up == {"suspended": full_tokens(ids, weights_b.page_size) / weights_b.page_size}
    cold = weights_b.cold(ids)  # asserts that nothing is cached
    assert_same(cold, unstored)
    weights_b.assert_restored(weights_b.again(ids), cold, ids)
