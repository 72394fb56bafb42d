"""A Llama whose linker alone writes and restores, from a slow disk tier and nothing above it."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.linked import Linked, linking
from tests.e2e.rig import Folder, assert_same, full_tokens, prompt, settings
from tests.e2e.served import MakeServer, Models
from tests.e2e.test_damaged_files import flip_a_bit

pytestmark = pytest.mark.server

BANDWIDTH = 4 << 20
"""Bytes a second: a prompt of the usual length is read in one, `LONG` in three."""
LONG = 6000


@pytest.fixture(scope="module")
def server(make_server: MakeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    folder = Folder(tmp_path_factory.mktemp("alone") / "kv")
    config = settings(folder, cpu=False, simulate={"bandwidth": BANDWIDTH})
    config["linker"] = {"offload_window": 2 * LONG}  # a long prompt waits for the tier as a whole
    with linking(make_server, "llama", folder, config) as server:
        yield server


def test_what_it_has_written_it_restores_and_does_not_write_again(server: Linked):
    ids = prompt(80)
    cold = server.cold(ids)
    with server.counting("hit_pages", "tier") as hits, server.counting("written_bytes", "tier") as written:
        answer = server.again(ids)
    server.assert_restored(answer, cold, ids)
    assert hits == {"disk": full_tokens(ids, server.page_size) / server.page_size}
    assert written == {}


def test_a_damaged_chunk_is_only_a_miss(server: Linked):
    """Its first pages are served, with all that precede them."""
    ids, before = prompt(81), set(server.folder.blobs())
    cold = server.cold(ids)
    mine = sorted(set(server.folder.blobs()) - before, key=lambda blob: blob.stat().st_mtime_ns)
    flip_a_bit(mine[2], at=-1)
    with server.counting("miss_pages", "reason") as missed:
        answer = server.again(ids)
    assert_same(answer, cold)
    assert answer.cached_tokens == 2 * 256 + 3 * 64  # the third chunk's last page
    assert missed == {"corrupt": 1}
    server.assert_restored(server.again(ids), cold, ids)  # written anew


def test_others_are_answered_while_one_waits_for_the_tier(server: Linked):
    """The scheduler does not stand still: who began before ends before."""
    slow, quick = prompt(83, LONG), prompt(84, 100)
    cold = server.cold(slow)
    server.server.flush()

    runs = threading.Event()

    def answer() -> float:
        server.server.generate(quick, 40, on_event=runs.set)
        return time.perf_counter()

    with ThreadPoolExecutor(1) as clients:
        other = clients.submit(answer)
        assert runs.wait(60)
        began = time.perf_counter()
        restored = server.generate(slow)
        ended = other.result()
    server.assert_restored(restored, cold, slow)
    assert ended < began + restored.ttft_s


def test_new_weights_find_nothing_of_the_old(server: Linked, models: Models):
    ids = prompt(82)
    old = server.cold(ids)
    server.server.update_weights(str(models("llama", 2)))
    new = server.cold(ids)  # asserts that nothing is cached
    assert new.logprobs != pytest.approx(old.logprobs, abs=1e-2)
    server.assert_restored(server.again(ids), new, ids)
