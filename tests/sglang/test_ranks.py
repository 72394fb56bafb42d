"""Whose pages these are: what ranks of one server and of others share, and what they must not."""

from typing import Any

import pytest

from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, read, transfer, write
from tests.sglang.pools import Pools, fill, page_bytes, slots

KEYS = chain(5)


def hits(rig: Rig, writer: dict[str, Any], reader: dict[str, Any], pools: tuple[Pools, Pools]) -> int:
    """Pages that a rank at `reader` finds after one at `writer` stored five of its own."""
    assert write(rig.backend(pools[0], writer), pools[0], KEYS, range(5)) == [True] * 5
    return rig.backend(pools[1], reader).batch_exists(KEYS, after())


def mla_rank(tp_rank: int, tp_size: int = 2, **more: Any) -> dict[str, Any]:
    return {"is_mla_model": True, "tp_rank": tp_rank, "tp_size": tp_size, **more}


def test_latent_kv_is_the_same_on_every_rank(disk_rig: Rig) -> None:
    """Rank 0 alone writes it (`is_storage_writer`); every rank reads it."""
    writer, reader = make.mla(), make.mla()
    fill(writer, seed=1)
    assert hits(disk_rig, mla_rank(0), mla_rank(1), (writer, reader)) == 5
    assert read(disk_rig.opened[-1], reader, KEYS, range(5, 10)) == [True] * 5
    assert [page_bytes(reader.host, page) for page in range(5, 10)] == [
        page_bytes(writer.host, page) for page in range(5)
    ]


def test_servers_with_other_numbers_of_ranks_share_latent_kv(disk_rig: Rig) -> None:
    assert hits(disk_rig, mla_rank(0, 2), mla_rank(3, 4), (make.mla(), make.mla())) == 5


def test_heads_belong_to_their_rank(disk_rig: Rig) -> None:
    ranks = {"tp_rank": 0, "tp_size": 2}, {"tp_rank": 1, "tp_size": 2}
    assert hits(disk_rig, *ranks, (make.mha(), make.mha())) == 0


def test_half_of_the_heads_is_not_all_of_them(disk_rig: Rig) -> None:
    """As many bytes a page: two heads of one rank, or two of the four of a model."""
    assert hits(disk_rig, {}, {"tp_rank": 0, "tp_size": 2}, (make.mha(), make.mha())) == 0


def test_the_same_rank_of_another_server_hits(disk_rig: Rig) -> None:
    place = {"tp_rank": 1, "tp_size": 2}
    assert hits(disk_rig, place, place, (make.mha(), make.mha())) == 5


def test_replicas_of_data_parallel_attention_share(disk_rig: Rig) -> None:
    assert hits(disk_rig, {"dp_rank": 0}, {"dp_rank": 3}, (make.mha(), make.mha())) == 5


def test_a_served_name_is_no_identity(disk_rig: Rig) -> None:
    assert hits(disk_rig, {"model_name": "a"}, {"model_name": "b"}, (make.mha(), make.mha())) == 5


@pytest.mark.parametrize("maker", [make.mha, make.mla])
def test_pipeline_stages_hold_other_layers(disk_rig: Rig, maker: Any) -> None:
    mla = {"is_mla_model": maker is make.mla}
    first, second = {"pp_rank": 0, "pp_size": 2, **mla}, {"pp_rank": 1, "pp_size": 2, **mla}
    assert hits(disk_rig, first, second, (maker(start_layer=0), maker(start_layer=3))) == 0
    assert disk_rig.backend(maker(start_layer=0), first).batch_exists(KEYS, after()) == 5


def test_another_split_into_stages_never_hits(disk_rig: Rig) -> None:
    """The same number of layers, which are others of the model."""
    place = {"pp_rank": 1, "pp_size": 2}
    assert hits(disk_rig, place, place, (make.mha(start_layer=3), make.mha(start_layer=4))) == 0


@pytest.mark.parametrize("maker", [make.mha, make.mla])
def test_context_parallel_ranks_hold_other_slices(disk_rig: Rig, maker: Any) -> None:
    mla = {"is_mla_model": maker is make.mla}
    places = [{"attn_cp_rank": rank, "attn_cp_size": 2, **mla} for rank in (0, 1)]
    assert hits(disk_rig, places[0], places[1], (maker(), maker())) == 0
    assert disk_rig.backend(maker(), places[0]).batch_exists(KEYS, after()) == 5


def test_decode_context_parallel_ranks_hold_other_slices(disk_rig: Rig) -> None:
    places = [mla_rank(rank, dcp_rank=rank, dcp_size=2, logical_page_size=32) for rank in (0, 1)]
    assert hits(disk_rig, places[0], places[1], (make.mla(), make.mla())) == 0
    assert disk_rig.backend(make.mla(), places[0]).batch_exists(KEYS, after()) == 5


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "first rank alone" in record.message]


def test_it_is_said_where_no_tier_is_seen_by_the_ranks_that_do_not_write(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.tiers = "cpu"
    rig.backend(make.mha(), {"tp_rank": 1, "tp_size": 2})
    rig.backend(make.mla(), mla_rank(0, 1))
    assert not warned(caplog)
    rig.backend(make.mla(), mla_rank(1))
    assert ["disk tier" in message for message in warned(caplog)] == [True]


def test_it_is_said_that_a_sharded_pool_of_a_replicated_model_is_written_by_one_rank(
    disk_rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    disk_rig.backend(make.mla(), mla_rank(1), side={"mamba": make.mamba()})
    assert not warned(caplog)
    disk_rig.backend(make.mla(), mla_rank(1), side={"draft": make.mha(layers=1)})
    assert ["pool draft" in message for message in warned(caplog)] == [True]


def test_recurrent_state_is_sharded_even_where_kv_is_not(disk_rig: Rig) -> None:
    """Both ranks store under the same key, and each gets back its own."""
    key, at = chain(1), slots([0], 1)
    states = [make.mamba(), make.mamba()]
    backends = [
        disk_rig.backend(make.mla(), mla_rank(rank), side={"mamba": state})
        for rank, state in enumerate(states)
    ]
    for rank, (backend, state) in enumerate(zip(backends, states, strict=True)):
        fill(state, seed=rank)
        assert backend.batch_set_v2([transfer("mamba", key, at)], after()) == {"mamba": [True]}
    assert page_bytes(states[0].host, 0) != page_bytes(states[1].host, 0)
    for backend, state in zip(backends, states, strict=True):
        assert backend.batch_get_v2([transfer("mamba", key, slots([7], 1))], after()) == {"mamba": [True]}
        assert page_bytes(state.host, 7) == page_bytes(state.host, 0)


def test_index_keys_are_the_same_on_every_rank(disk_rig: Rig) -> None:
    keys, at = chain(2, 64), slots(range(2), 64)
    backends = []
    for tp_rank in (0, 1):
        kv, index = make.indexer(pages=4)
        backends.append(disk_rig.backend(kv, mla_rank(tp_rank), side={"indexer": index}))
    assert backends[0].batch_set_v2([transfer("indexer", keys, at)], after()) == {"indexer": [True] * 2}
    assert backends[1].batch_get_v2([transfer("indexer", keys, at)], after()) == {"indexer": [True] * 2}


def test_heads_of_a_draft_model_beside_latent_kv_belong_to_their_rank(disk_rig: Rig) -> None:
    at = slots(range(5), 16)
    backends = [
        disk_rig.backend(make.mla(), mla_rank(rank), side={"draft": make.mha(layers=1)}) for rank in (0, 1)
    ]
    assert backends[0].batch_set_v2([transfer("draft", KEYS, at)], after()) == {"draft": [True] * 5}
    assert backends[1].batch_get_v2([transfer("draft", KEYS, at)], after()) == {"draft": [False] * 5}


def test_ranks_agree_on_the_longest_prefix_that_all_can_restore(disk_rig: Rig) -> None:
    """Each rank lost another state; what SGLang computes from their answers can be read by both."""
    keys = chain(8)
    backends = []
    for rank, kept in enumerate([(3, 5, 7), (1, 3, 5)]):
        kv, state = make.mla(), make.mamba()
        backend = disk_rig.backend(kv, mla_rank(rank), side={"mamba": state})
        if rank == 0:
            write(backend, kv, keys, range(8))
        for page in kept:
            backend.batch_set_v2(
                [transfer("mamba", keys[page : page + 1], slots([page], 1))], after(*keys[:page])
            )
        backends.append(backend)
    asked = [transfer("mamba", keys[:1], trailing=True)]
    results = [backend.batch_exists_v2(keys, asked, after()) for backend in backends]
    assert [result.kv_hit_pages for result in results] == [8, 6]
    common = set.intersection(*(set(result.restorable_prefix_pages or ()) for result in results))
    assert max(common) == 6
    for backend in backends:
        got = backend.batch_get_v2([transfer("mamba", keys[5:6], slots([9], 1))], after(*keys[:5]))
        assert got == {"mamba": [True]}
