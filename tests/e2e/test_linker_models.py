"""The linker on real servers of models that are no plain Llama on one rank."""

from collections.abc import Iterator

import pytest

from tests.e2e.linked import Linked, linking
from tests.e2e.rig import Folder, assert_same, full_tokens, prompt, settings
from tests.e2e.served import MakeServer

pytestmark = pytest.mark.server


@pytest.fixture(scope="class")
def server(
    request: pytest.FixtureRequest, make_server: MakeServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Linked]:
    """The server that the class describes, over a disk tier alone."""
    of = request.cls
    folder = Folder(tmp_path_factory.mktemp(of.__name__) / "kv")
    config = settings(folder, cpu=False)
    with linking(make_server, of.kind, folder, config, tp=of.tp, token_bytes=of.token_bytes) as server:
        yield server


class LinkedModelTests:
    tp = 1

    def test_a_prompt_is_restored(self, server: Linked):
        ids = prompt(90)
        cold = server.cold(ids)
        with server.counting("written_bytes", "tier") as written:
            server.assert_restored(server.again(ids), cold, ids)
        assert written == {}

    def test_a_prompt_that_goes_on_where_another_ended(self, server: Linked):
        ids = prompt(91)
        server.cold(ids)
        longer = [*ids, *prompt(92, 300)]
        answer = server.again(longer)
        assert answer.cached_by_tier == {"device": 0, "host": full_tokens(ids, server.page_size)}
        apart = server.again(longer, extra_key="apart")
        assert apart.cached_tokens == 0
        assert_same(answer, apart)


class TestMla(LinkedModelTests):
    """One latent row a token and layer."""

    kind, token_bytes = "mla", 1152


class TestSlidingWindow(LinkedModelTests):
    """Full and window layers in two pools; the window of 128 tokens is far shorter than the prompt."""

    kind, token_bytes = "swa", 1024


class TestTensorParallel(LinkedModelTests):
    """Two ranks, each with its shard of every page under the same page key."""

    kind, token_bytes, tp = "llama", 2048, 2
