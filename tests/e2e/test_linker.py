"""A real server whose device pools are linked to the store, beside HiCache servers of the same model."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sgkv.testing.pairs import Ratio
from sgkv.testing.restoring import restored_in_turns
from tests.e2e.linked import Linked, linking
from tests.e2e.rig import Folder, assert_same, full_tokens, prompt, settings
from tests.e2e.served import MakeServer, Served

pytestmark = pytest.mark.server

LONG, PAIRS = 4000, 12
SLOWER = 1.1
"""What layers one by one may cost the first token: far above the noise, and above any gain of theirs."""


@pytest.fixture(scope="module")
def server(make_server: MakeServer, shared_folder: Folder, llama: Served) -> Iterator[Linked]:
    """A Llama over the folder that HiCache servers of it use, too."""
    with linking(make_server, "llama", shared_folder, settings(shared_folder)) as server:
        yield server


@pytest.fixture(scope="module")
def at_once(make_server: MakeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    """One that loads every layer before the model computes the first."""
    folder = Folder(tmp_path_factory.mktemp("at-once") / "kv")
    config = {**settings(folder), "linker": {"layer_wise": False}}
    with linking(make_server, "llama", folder, config) as server:
        yield server


class TestBesideHiCache:
    def test_it_restores_what_hicache_has_stored(self, server: Linked, llama: Served):
        with server.counting("hit_pages", "tier") as hits:
            answer = server.again(llama.first_ids)
        server.assert_restored(answer, llama.first, llama.first_ids)
        assert hits.keys() == {"disk"}

    def test_hicache_restores_what_it_has_stored(self, server: Linked, llama: Served):
        llama.attach(settings(llama.folder))
        ids = prompt(60)
        cold = server.cold(ids)
        llama.assert_restored(llama.again(ids), cold, ids)

    def test_from_memory_and_written_once(self, server: Linked):
        ids = prompt(61)
        cold = server.cold(ids)
        with (
            server.counting("written_bytes", "tier") as written,
            server.counting("hit_pages", "tier") as hits,
        ):
            answer = server.again(ids)
        server.assert_restored(answer, cold, ids)
        assert (hits.keys(), written) == ({"cpu"}, {})

    def test_a_longer_prompt_over_what_the_device_has(self, server: Linked):
        """The device has a part that ends inside a chunk, the store has more."""
        ids = prompt(62)
        cold = server.cold(ids)
        server.server.flush()
        server.generate(ids[:700])
        answer = server.generate(ids)
        assert answer.cached_by_tier == {"device": 640, "host": full_tokens(ids, 64) - 640}
        assert_same(answer, cold)

    def test_several_requests_at_once(self, server: Linked):
        prompts = [prompt(seed) for seed in range(63, 67)]
        cold = [server.cold(ids) for ids in prompts]
        server.server.flush()
        with ThreadPoolExecutor(len(prompts)) as clients:
            answers = list(clients.map(server.generate, prompts))
        for answer, reference in zip(answers, cold, strict=True):
            assert answer.cached_tokens == full_tokens(prompts[0], 64)
            assert_same(answer, reference)


def test_layer_by_layer_the_first_token_is_no_later(
    server: Linked, at_once: Linked, record_testsuite_property: Callable[[str, object], None]
):
    """Gross harm would show; `sgkv bench linker` has the figure."""
    ids = prompt(68, LONG)
    pairs = restored_in_turns(at_once.server, server.server, ids, full_tokens(ids, 64), PAIRS)
    ratio, processors = Ratio.of_first_tokens(pairs), Ratio.of_processor_time(pairs)
    record_testsuite_property("restored_ttft", f"{ratio.mean:.3f} ± {ratio.error:.3f}")
    # What else runs on the machine makes first tokens late; it takes no processor time of the servers.
    assert ratio.within(SLOWER) is not False or processors.within(SLOWER), (ratio, processors)
