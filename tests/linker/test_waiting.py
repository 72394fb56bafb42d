"""SGLang asks again for a request whose pages are being read, and says when one is aborted.

The hooks are applied by SGLang's own registry to its own class; of that only the bodies of two methods,
which need a scheduler, are stood in for.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import UnifiedCacheLinkerWrapper
from sglang.srt.plugins.hook_registry import HookRegistry

from sgkv.sglang import plugin
from sgkv.sglang.linking import waiting
from sgkv.testing.waiting import wait_until
from tests.linker.conftest import Linked, LinkerRig, fill, kv
from tests.sglang import pools as make
from tests.sglang.conftest import chain, own_hooks

REQUEST = SimpleNamespace(rid="r")
LOADED = (128, 7)
SLOW = {"simulate": {"bandwidth": 256 << 10}}


@pytest.fixture(autouse=True)
def hooks() -> Iterator[None]:
    with own_hooks() as patch:
        patch.setattr(UnifiedCacheLinkerWrapper, "load_back", lambda _self, _request: LOADED)
        patch.setattr(UnifiedCacheLinkerWrapper, "release_request", lambda _self, _rid: None)
        waiting.watch()
        HookRegistry.apply_hooks()
        yield


@pytest.fixture
def slow(linkers: LinkerRig) -> Linked:
    """A prompt of eight pages in a tier that takes its time, looked up."""
    pool = make.mha().device
    fill(pool, 1)
    linked = linkers.open(pool, names="disk", disk=SLOW)
    assert linked.offload([kv(chain(8), range(1, 9))])
    assert linked.lookup([kv(chain(8))])[-1] == 8
    return linked


def wrapper(linker: Any) -> UnifiedCacheLinkerWrapper:
    """SGLang's, in the state in which a request has a hit."""
    wrapped = object.__new__(UnifiedCacheLinkerWrapper)
    vars(wrapped).update(cache_linker=linker, hit_markers={"r": "a hit"})
    return wrapped


def test_a_load_back_gives_none_until_the_pages_are_there(slow: Linked):
    wrapped = wrapper(slow.linker)
    assert wrapped.load_back(REQUEST) is None
    assert wrapped.hit_markers == {}  # or a later step would load what its lookup has not found
    wait_until(lambda: wrapped.load_back(REQUEST) == LOADED, "the pages to be read")


def test_an_abort_frees_what_is_read(slow: Linked):
    wrapper(slow.linker).release_request("r")
    wait_until(lambda: not slow.linker.bounds()["read_ahead_bytes"].used, "the read to end")
    assert wrapper(slow.linker).load_back(REQUEST) == LOADED


def test_stages_of_a_pipeline_are_not_put_off(linkers: LinkerRig):
    """Each decides alone, and they must decide alike."""
    pool = make.mha().device
    linked = linkers.open(pool, names="disk", disk=SLOW, place={"pp_size": 2})
    assert linked.offload([kv(chain(8), range(1, 9))])
    assert linked.lookup([kv(chain(8))])[-1] == 8
    assert wrapper(linked.linker).load_back(REQUEST) == LOADED


def test_linkers_of_others_are_left_alone():
    other = wrapper(object())
    assert other.load_back(REQUEST) == LOADED
    other.release_request("r")
    assert other.hit_markers == {"r": "a hit"}


def test_where_sglang_has_moved_it_the_scheduler_waits_and_that_is_said(caplog: pytest.LogCaptureFixture):
    with own_hooks() as patch:
        patch.delattr(UnifiedCacheLinkerWrapper, "release_request")
        plugin.install()
    (record,) = [record for record in caplog.records if record.name == "sgkv"]
    assert "release_request: a linker stops the scheduler" in record.getMessage()
