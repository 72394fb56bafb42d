"""Cold and restored answers are equal: models, page sizes, layouts, ways to start, ways to die.

All servers use one folder and begin with the same prompt, so each also shows that it takes nothing
from those before it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.restored import CrashTests, RestoredTests, serving
from tests.e2e.rig import Folder, assert_same, prompt, settings
from tests.e2e.served import MakeServer, Served

pytestmark = pytest.mark.server


@pytest.fixture(scope="class")
def served(
    request: pytest.FixtureRequest, make_server: MakeServer, shared_folder: Folder, llama: Served
) -> Iterator[Served]:
    """The server that the class describes, after `llama` has stored the same prompt."""
    of = request.cls
    server = make_server(
        of.kind,
        page_size=of.page_size,
        layout=of.layout,
        storage_config=settings(shared_folder),
        **of.options,
    )
    with serving(server, shared_folder, page_size=of.page_size, token_bytes=of.token_bytes) as served:
        yield served


class Llama(RestoredTests):
    kind, token_bytes = "llama", 2048


class Mla(RestoredTests):
    """One latent row a token and layer, without a head axis."""

    kind, token_bytes = "mla", 1152


class SlidingWindow(RestoredTests):
    """Full and window layers in two pools; the window of 128 tokens is far shorter than the prompt."""

    kind, token_bytes = "swa", 1024
    common_tokens = 0
    """SGLang keeps the window's pages at the end of a prompt only, not where prompts part."""


class TensorParallel(Llama):
    """Two ranks, each with its shard of every page under the same page key."""

    options = {"tp": 2}  # noqa: RUF012 - read only


class TestLlama(Llama, CrashTests):
    """64 tokens a page, page_first, `--hicache-storage-backend sgkv` by launch_server."""

    @pytest.fixture(scope="class")
    @classmethod
    def served(cls, llama: Served) -> Served:
        return llama


class TestLlamaSmallPages(Llama):
    """By `sglang serve`."""

    page_size, layout = 16, "layer_first"
    options = {"entry": "serve"}  # noqa: RUF012


class TestLlamaLargePagesWithoutHostCache(Llama):
    """Host memory is a mere buffer: the cpu tier is the host cache."""

    page_size, layout = 256, "page_head"
    options = {"extra_args": ["--hicache-host-memory-mode", "buffer_only"]}  # noqa: RUF012


class TestMla(Mla, CrashTests):
    layout = "page_first_direct"


class TestMlaSmallPages(Mla):
    page_size, layout = 16, "layer_first"


class TestMlaLargePages(Mla):
    page_size = 256


class TestSlidingWindow(SlidingWindow):
    pass


class TestSlidingWindowSmallPages(SlidingWindow):
    page_size, layout = 16, "layer_first"


class TestSlidingWindowLargePages(SlidingWindow):
    """The window is shorter than a page."""

    page_size, layout = 256, "page_first_direct"


class TestTensorParallel(TensorParallel, CrashTests):
    @pytest.mark.parametrize("writes", ["one rank", "two ranks"])
    def test_a_server_of_another_size_over_one_grid(
        self, served: Served, llama: Served, tmp_path: Path, writes: str
    ):
        """What either stores answers the other as its own cold run does."""
        grid = {**settings(Folder(tmp_path / "kv")), "model": {"head_group": 1}}
        writer, reader = (llama, served) if writes == "one rank" else (served, llama)
        ids = prompt(30 + len(writes))
        own = reader.plain(ids)
        writer.attach(grid)
        assert_same(writer.cold(ids, Folder(tmp_path / "kv")), own)
        reader.attach(grid)
        reader.assert_restored(reader.again(ids), own, ids)


class TestTensorParallelLargePages(TensorParallel):
    page_size, layout = 256, "page_head"
