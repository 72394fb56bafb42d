"""A Llama whose linker alone writes and restores, from a disk tier and nothing above it."""

from collections.abc import Iterator

import pytest

from tests.e2e.linked import Linked, linking
from tests.e2e.rig import Folder, assert_same, full_tokens, prompt, settings
from tests.e2e.served import MakeServer, Models
from tests.e2e.test_damaged_files import flip_a_bit

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(make_server: MakeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    folder = Folder(tmp_path_factory.mktemp("alone") / "kv")
    with linking(make_server, "llama", folder, settings(folder, cpu=False)) as server:
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


def test_new_weights_find_nothing_of_the_old(server: Linked, models: Models):
    ids = prompt(82)
    old = server.cold(ids)
    server.server.update_weights(str(models("llama", 2)))
    new = server.cold(ids)  # asserts that nothing is cached
    assert new.logprobs != pytest.approx(old.logprobs, abs=1e-2)
    server.assert_restored(server.again(ids), new, ids)
