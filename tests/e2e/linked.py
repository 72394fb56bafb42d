"""Servers whose device pools are linked to the store, with no host pools."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sgkv.sglang.launch import linker_arguments
from sgkv.testing.client import Generation
from tests.e2e.rig import Folder, Settings, assert_same, full_tokens
from tests.e2e.served import MakeServer, Served


class Linked(Served):
    """A server with the linker; SGLang counts what that restores as ``host``."""

    def assert_restored(self, answer: Generation, cold: Generation, ids: Sequence[int]) -> None:
        restored = answer.cached_by_tier.get("host", 0)
        assert answer.cached_tokens == restored == full_tokens(ids, self.page_size)
        assert_same(answer, cold)


@contextmanager
def linking(
    make_server: MakeServer, kind: str, folder: Folder, config: Settings, **facts: object
) -> Iterator[Linked]:
    """Run a server over `folder`; `facts` are of `Linked`, but for `tp`."""
    options = {"tp": facts.pop("tp")} if "tp" in facts else {}
    with make_server(kind, storage=None, extra_args=linker_arguments(config), **options) as running:
        yield Linked(running, folder, **facts)
        running.kill()  # sooner done than SIGTERM
