"""Cold and restored answers are equal: models, page sizes, layouts, ways to start, ways to die.

All servers use one folder and begin with the same prompt, so each also shows that it takes nothing
from those before it.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.restored import CrashTests, RestoredTests, serving
from tests.e2e.rig import Folder, settings
from tests.e2e.served import MakeServer, Served

pytestmark = pytest.mark.server


class TestLlama(RestoredTests, CrashTests):
    """64 tokens a page, page_first, `--hicache-storage-backend sgkv` by launch_server."""

    @pytest.fixture(scope="class")
    @classmethod
    def served(cls, llama: Served) -> Served:
        return llama


class TestSmallPages(RestoredTests):
    """16 tokens a page, layer_first, by `sglang serve`."""

    @pytest.fixture(scope="class")
    @classmethod
    def served(cls, make_server: MakeServer, shared_folder: Folder, llama: Served) -> Iterator[Served]:
        store = settings(shared_folder)
        server = make_server("llama", page_size=16, layout="layer_first", entry="serve", storage_config=store)
        with serving(server, shared_folder, page_size=16) as served:
            yield served


class TestLargePagesWithoutHostCache(RestoredTests):
    """256 tokens a page, page_head, and host memory as a mere buffer: the cpu tier is the host cache."""

    @pytest.fixture(scope="class")
    @classmethod
    def served(cls, make_server: MakeServer, shared_folder: Folder, llama: Served) -> Iterator[Served]:
        server = make_server(
            "llama",
            page_size=256,
            layout="page_head",
            storage_config=settings(shared_folder),
            extra_args=["--hicache-host-memory-mode", "buffer_only"],
        )
        with serving(server, shared_folder, page_size=256) as served:
            yield served


class TestLatentAttention(RestoredTests, CrashTests):
    """MLA: one latent row a token and layer, page_first_direct."""

    @pytest.fixture(scope="class")
    @classmethod
    def served(cls, make_server: MakeServer, shared_folder: Folder, llama: Served) -> Iterator[Served]:
        server = make_server("mla", layout="page_first_direct", storage_config=settings(shared_folder))
        with serving(server, shared_folder, token_bytes=1152) as served:
            yield served


class TestSlidingWindow(RestoredTests):
    """Full and window layers in two pools; the window is far shorter than the prompt."""

    common_tokens = 0
    """SGLang keeps the window's pages at the end of a prompt only, not where prompts part."""

    @pytest.fixture(scope="class")
    @classmethod
    def served(cls, make_server: MakeServer, shared_folder: Folder, llama: Served) -> Iterator[Served]:
        server = make_server("swa", storage_config=settings(shared_folder))
        with serving(server, shared_folder, token_bytes=1024) as served:
            yield served


class TestTensorParallel(RestoredTests, CrashTests):
    """Two ranks, each with its shard of every page under the same page key."""

    @pytest.fixture(scope="class")
    @classmethod
    def served(cls, make_server: MakeServer, shared_folder: Folder, llama: Served) -> Iterator[Served]:
        server = make_server("llama", tp=2, storage_config=settings(shared_folder))
        with serving(server, shared_folder) as served:
            yield served
