"""Kinds: bytes that change hands too early, and parts of one page that part company."""

from pathlib import Path

import pytest
from sglang.srt.mem_cache.utils import get_hash_str

from sgkv.keys import namespace_seed
from sgkv.sglang.hicache import SgkvHiCache
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, read, transfer, write
from tests.sglang.pools import Pools, blank, fill, page_bytes, slots

KEYS = chain(8)


@pytest.mark.parametrize("tiers", ["cpu", "disk", "cpu+disk"])
def test_pages_that_change_after_set_has_returned_are_stored_as_they_were(rig: Rig, tiers: str) -> None:
    """SGLang gives the host slots to other requests as soon as the call is over."""
    rig.tiers = tiers
    kv = make.mha()
    fill(kv, seed=1)
    before = [page_bytes(kv.host, page) for page in range(8)]
    backend = rig.backend(kv)
    assert all(write(backend, kv, KEYS, range(8)))
    fill(kv, seed=2)
    assert backend.store.flush(30)
    if tiers != "cpu":
        backend.close()
        backend = rig.backend(kv)
    assert read(backend, kv, KEYS, range(8, 16)) == [True] * 8
    assert [page_bytes(kv.host, page) for page in range(8, 16)] == before


def side_files(folder: Path, kept: set[Path]) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file() and path not in kept]


def test_a_side_object_lost_between_lookup_and_read_is_reported_by_the_read(disk_rig: Rig) -> None:
    """Kind: a lookup's promise is taken for the bytes (index keys shorter than the KV: garbled text)."""
    keys, at = chain(4, 64), slots(range(4), 64)
    kv, index = make.indexer(pages=8)
    fill(index, seed=1)
    backend = disk_rig.backend(kv, {"is_mla_model": True}, side={"indexer": index})
    assert all(write(backend, kv, keys, range(4)))
    kept = set(side_files(disk_rig.folder, set()))
    assert backend.batch_set_v2([transfer("indexer", keys, at)], after()) == {"indexer": [True] * 4}
    asked = [transfer("indexer", keys)]
    assert backend.batch_exists_v2(keys, asked, after()).kv_hit_pages == 4
    min(side_files(disk_rig.folder, kept)).unlink()
    got = backend.batch_get_v2([transfer("indexer", keys, slots(range(4, 8), 64))], after())["indexer"]
    assert got.count(False) >= 1
    for page, hit in enumerate(got):
        assert not hit or page_bytes(index.host, page + 4) == page_bytes(index.host, page)
    assert backend.batch_exists_v2(keys, asked, after()).kv_hit_pages == got.index(False)


def both(rig: Rig) -> tuple[list[SgkvHiCache], Pools]:
    kv = make.mla()
    places = [{"is_mla_model": True, "tp_rank": rank, "tp_size": 2} for rank in (0, 1)]
    return [rig.backend(kv, place) for place in places], kv


def test_a_salted_prompt_is_not_found_by_the_same_prompt_unsalted(disk_rig: Rig) -> None:
    """No call carries a salt that could be forgotten: it is in every hash of the chain."""
    kv = make.mha()
    backend = disk_rig.backend(kv)
    tokens = list(range(8 * 16))
    chains = [
        get_hash_str(tokens, namespace_seed(*of), 16)
        for of in ((None, None), (None, "a"), (None, "b"), ("lora", None), ("lora", "a"))
    ]
    fill(kv, seed=1)
    assert all(write(backend, kv, chains[1], range(8)))
    assert [backend.batch_exists(keys, after()) for keys in chains] == [0, 8, 0, 0, 0]
    blank(kv)
    assert not any(read(backend, kv, chains[2], range(8)))


def test_a_clear_by_one_rank_leaves_nothing_to_read_for_the_other(disk_rig: Rig) -> None:
    """Its lookup may still promise what its index remembers; the read finds out."""
    ranks, kv = both(disk_rig)
    assert all(write(ranks[0], kv, KEYS, range(8)))
    assert ranks[1].batch_exists(KEYS, after()) == 8
    ranks[0].clear()
    assert ranks[0].batch_exists(KEYS, after()) == 0
    assert not any(read(ranks[1], kv, KEYS, range(8, 16)))
    assert ranks[1].batch_exists(KEYS, after()) == 0
