"""Servers of any size over one grid of cells: each rank reads its part of the model, whoever wrote it.

A model of four layers and four kv heads; ranks hold slices of it in SGLang's own pools.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgkv.config import ConfigError
from sgkv.sglang.cpu import install as install_row_copies
from sgkv.testing.models import write_model
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, published, read, transfer, write
from tests.sglang.copies import device_layers, from_device, to_device
from tests.sglang.pools import Pools, blank, fill, page_bytes, slots

LAYERS, HEADS, PAGES, SIZE = 4, 4, 5, 16
KEYS = chain(PAGES, SIZE)
MODEL = {"weights": "r1", "head_group": 1}
BY_LAYERS = {"weights": "r1", "head_group": 1, "layer_group": 1}


@pytest.fixture(scope="module", autouse=True)
def row_copies() -> None:
    install_row_copies()


@pytest.fixture(scope="module", autouse=True)
def process_of_a_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """SGLang says in it how many kv heads the model has."""
    model = write_model(tmp_path_factory.mktemp("cells") / "model", "llama", num_key_value_heads=HEADS)
    with published(model_path=str(model)):
        yield


@pytest.fixture(scope="module")
def kv() -> torch.Tensor:
    """``[K or V][layer][token][head][dim]`` of the model, all different."""
    count = 2 * LAYERS * PAGES * SIZE * HEADS * make.DIM
    return torch.arange(count, dtype=torch.float32).view(2, LAYERS, PAGES * SIZE, HEADS, make.DIM)


@dataclass(frozen=True)
class Rank:
    """One rank of a server whose stages are equal, and so are its shards."""

    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    layout: str = "page_first"

    @property
    def layers(self) -> slice:
        size = LAYERS // self.pp_size
        return slice(self.pp_rank * size, (self.pp_rank + 1) * size)

    @property
    def heads(self) -> slice:
        own = max(1, HEADS // self.tp_size)
        first = self.tp_rank * HEADS // self.tp_size
        return slice(first, first + own)

    @property
    def place(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("tp_rank", "tp_size", "pp_rank", "pp_size")}

    def pools(self) -> Pools:
        layers, heads = self.layers, self.heads
        return make.mha(
            self.layout, SIZE, heads=heads.stop - heads.start, layers=layers.stop - layers.start,
            start_layer=layers.start,
        )  # fmt: skip

    def part(self, kv: torch.Tensor) -> torch.Tensor:
        """Its slice of the model's KV."""
        return kv[:, self.layers, :, self.heads]


def server(tp: int = 1, pp: int = 1, layout: str = "page_first") -> list[Rank]:
    return [Rank(t, tp, p, pp, layout) for p in range(pp) for t in range(tp)]


def store(rig: Rig, ranks: Sequence[Rank], kv: torch.Tensor, **options: Any) -> None:
    """Every rank writes its part, from its device through its host pool."""
    for rank in ranks:
        pools = rank.pools()
        part = rank.part(kv).flatten(0, 1)
        for layer, rows in zip(device_layers(pools.device), part, strict=True):
            layer[slots(range(1, 1 + PAGES), SIZE)] = rows
        from_device(pools, range(1, 1 + PAGES), range(PAGES))
        backend = rig.backend(pools, rank.place, **{"model": MODEL, **options})
        assert write(backend, pools, KEYS, range(PAGES)) == [True] * PAGES
        assert backend.store.flush(30)


def check_restored(rig: Rig, ranks: Sequence[Rank], kv: torch.Tensor, **options: Any) -> None:
    """Every rank finds all pages, and its device then holds its part of the model."""
    for rank in ranks:
        pools = rank.pools()
        backend = rig.backend(pools, rank.place, **{"model": MODEL, **options})
        assert backend.batch_exists(KEYS, after()) == PAGES
        assert read(backend, pools, KEYS, range(8, 8 + PAGES)) == [True] * PAGES
        to_device(pools, range(8, 8 + PAGES), range(2, 2 + PAGES))
        for layer, rows in zip(device_layers(pools.device), rank.part(kv).flatten(0, 1), strict=True):
            assert layer[slots(range(2, 2 + PAGES), SIZE)].equal(rows)


def found(rig: Rig, rank: Rank, **options: Any) -> int:
    return rig.backend(rank.pools(), rank.place, **{"model": MODEL, **options}).batch_exists(KEYS, after())


def raw(rows: torch.Tensor) -> torch.Tensor:
    """Their bytes: random ones may be NaNs, which equal nothing."""
    return rows.contiguous().view(torch.uint8)


sizes = st.sampled_from([1, 2, 4])
layouts = st.sampled_from(make.MHA_LAYOUTS)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(sizes, sizes, layouts, layouts, st.sampled_from([1, 2, 4]), st.data())
def test_any_size_reads_what_any_other_wrote(
    tiered_rig: Rig, kv: torch.Tensor, writers: int, readers: int, one: str, other: str, group: int, data: Any
) -> None:
    group = min(group, HEADS // max(writers, readers))
    folder = data.draw(st.uuids())
    tiered_rig.folder = tiered_rig.folder.parent / str(folder)
    options = {"model": {"weights": "r1", "head_group": group}}
    store(tiered_rig, server(writers, layout=one), kv, **options)
    check_restored(tiered_rig, server(readers, layout=other), kv, **options)
    while tiered_rig.opened:
        tiered_rig.opened.pop().close()


@pytest.mark.parametrize("readers", [(1, 1), (2, 1), (1, 2), (2, 2), (1, 4)], ids=str)
@pytest.mark.parametrize("writers", [(1, 1), (2, 2), (1, 4)], ids=str)
def test_any_split_into_stages_and_shards(
    disk_rig: Rig, kv: torch.Tensor, writers: tuple[int, int], readers: tuple[int, int]
) -> None:
    store(disk_rig, server(*writers), kv, model=BY_LAYERS)
    check_restored(disk_rig, server(*readers, "page_head"), kv, model=BY_LAYERS)


def test_the_last_cell_of_layers_may_be_smaller(disk_rig: Rig, kv: torch.Tensor) -> None:
    three = {"weights": "r1", "layer_group": 3}
    store(disk_rig, server(), kv, model=three)
    check_restored(disk_rig, server(), kv, model=three)


def test_the_ranks_of_one_head_store_it_once(
    disk_rig: Rig, kv: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    """Four kv heads on eight ranks: neighbours hold the same one."""
    ranks = server(8)
    store(disk_rig, ranks[1::2], kv)
    assert found(disk_rig, ranks[0]) == 0
    store(disk_rig, ranks[0::2], kv)
    check_restored(disk_rig, ranks, kv)
    check_restored(disk_rig, server(1), kv)
    assert "add a disk tier" not in caplog.text
    disk_rig.tiers = "cpu"
    disk_rig.backend(ranks[1].pools(), ranks[1].place, model=MODEL)
    assert "stored by another rank alone" in caplog.text


def test_a_page_without_one_of_its_cells_is_a_miss(disk_rig: Rig, kv: torch.Tensor) -> None:
    """What a rank can read is what all its cells have."""
    store(disk_rig, server(2)[:1], kv)
    assert [found(disk_rig, rank) for rank in server(4)] == [PAGES, PAGES, 0, 0]
    whole = Rank()
    pools = whole.pools()
    backend = disk_rig.backend(pools, whole.place, model=MODEL)
    assert backend.batch_exists(KEYS, after()) == 0
    assert read(backend, pools, KEYS, range(PAGES)) == [False] * PAGES
    snapshot = backend.store.stats().counters
    assert (snapshot["miss_pages"], "hit_pages" in snapshot) == ({"absent": PAGES}, False)


def test_a_page_counts_once_however_many_cells_it_has(disk_rig: Rig, kv: torch.Tensor) -> None:
    store(disk_rig, server(), kv)
    check_restored(disk_rig, server(), kv)
    snapshot = disk_rig.opened[-1].store.stats().counters
    assert snapshot["hit_pages"] == {"disk": PAGES}
    assert snapshot["read_bytes"] == {"disk": PAGES * len(page_bytes(Rank().pools().host, 0))}


def test_clear_forgets_every_cell(tiered_rig: Rig, kv: torch.Tensor) -> None:
    store(tiered_rig, server(), kv)
    tiered_rig.opened[-1].clear()
    assert [found(tiered_rig, rank) for rank in [*server(), *server(2)]] == [0, 0, 0]


def test_another_grid_never_hits(disk_rig: Rig, kv: torch.Tensor) -> None:
    store(disk_rig, server(), kv)
    for model in ({"weights": "r1"}, {"weights": "r1", "head_group": 2}, {**MODEL, "layer_group": 2}):
        assert found(disk_rig, Rank(), model=model) == 0
    assert found(disk_rig, Rank()) == PAGES


def test_cells_are_named_by_their_place_in_the_model(disk_rig: Rig) -> None:
    """Pinned: a change of a name loses all that was stored under it."""
    backend = disk_rig.backend(Rank(1, 2, 1, 2).pools(), Rank(1, 2, 1, 2).place, model=BY_LAYERS)
    shelf = backend.shelves.usable("kv")
    assert [cell.namespace.cell for cell in shelf.session.cells] == [
        "layers 2-3 heads 2-3", "layers 2-3 heads 3-4", "layers 3-4 heads 2-3", "layers 3-4 heads 3-4",
    ]  # fmt: skip
    assert {cell.namespace.geometry for cell in shelf.session.cells} == {"L1 T16 H1 rows 128,128"}


MISFITS = {
    "heads": (Rank(0, 2), {"head_group": 4}, "model.head_group: .* do not divide the 2 "),
    "layers": (Rank(pp_rank=0, pp_size=2), {"layer_group": 4}, "model.layer_group: .* a divisor of 2,"),
    "later layers": (Rank(pp_rank=1, pp_size=2), {"layer_group": 4}, "model.layer_group: .* a divisor of 2,"),
    "heads that nobody knows": (Rank(0, 3), {"head_group": 1}, "model.head_group: .* leave it out"),
}


@pytest.mark.parametrize(("rank", "grid", "message"), MISFITS.values(), ids=MISFITS.keys())
def test_a_grid_that_does_not_fit_is_refused_at_the_start(
    disk_rig: Rig, rank: Rank, grid: dict[str, int], message: str
) -> None:
    backend = disk_rig.bare(rank.place, model={"weights": "r1", **grid})
    with pytest.raises(ConfigError, match=message):
        backend.register_mem_pool_host(rank.pools().host)


def test_latent_kv_has_no_heads_to_cut_but_layers(disk_rig: Rig) -> None:
    def stage(first: int, place: dict[str, int], tp: int) -> tuple[Pools, Any]:
        pools = make.mla(layers=2 if place["pp_size"] == 2 else 4, start_layer=first)
        model = {**MODEL, "layer_group": 2}
        tp_place = {"is_mla_model": True, "tp_rank": tp - 1, "tp_size": tp}
        return pools, disk_rig.backend(pools, {**place, **tp_place}, model=model)

    whole, backend = stage(0, {"pp_rank": 0, "pp_size": 1}, tp=1)
    fill(whole, seed=1)
    assert write(backend, whole, KEYS, range(PAGES)) == [True] * PAGES
    for number, first in enumerate((0, 2)):
        pools, reader = stage(first, {"pp_rank": number, "pp_size": 2}, tp=2)
        assert reader.batch_exists(KEYS, after()) == PAGES
        assert read(reader, pools, KEYS, range(PAGES)) == [True] * PAGES
        own = slice(first, first + 2)
        assert raw(pools.host.kv_buffer[: PAGES * SIZE]).equal(raw(whole.host.kv_buffer[: PAGES * SIZE, own]))


def test_both_pools_of_a_model_with_windows_are_cut(disk_rig: Rig) -> None:
    """Its layers are not neighbours: they are named by their stage, and only heads are cut."""

    def backend(heads: int, place: dict[str, int]) -> tuple[tuple[Pools, Pools], Any]:
        full, swa = make.sliding_window(heads=heads)
        return (full, swa), disk_rig.backend(full, place, side={"swa": swa}, model=BY_LAYERS)

    (full, swa), writer = backend(4, {})
    fill(full, seed=1)
    fill(swa, seed=2)
    window = transfer("swa", KEYS[-1:], slots([0], SIZE), trailing=True)
    assert writer.batch_set_v2([window], after(*KEYS[:-1])) == {"swa": [True]}
    assert write(writer, full, KEYS, range(PAGES)) == [True] * PAGES
    for rank in (0, 1):
        (own_full, own_swa), reader = backend(2, {"tp_rank": rank, "tp_size": 2})
        asked = [transfer("swa", KEYS[-1:], trailing=True)]
        assert reader.batch_exists_v2(KEYS, asked, after()).kv_hit_pages == PAGES
        blank(own_full)
        assert read(reader, own_full, KEYS, range(PAGES)) == [True] * PAGES
        assert reader.batch_get_v2([window], after(*KEYS[:-1])) == {"swa": [True]}
        for mine, model in ((own_full, full), (own_swa, swa)):
            own = slice(2 * rank, 2 * rank + 2)
            assert raw(mine.host.kv_buffer[:, :SIZE]).equal(raw(model.host.kv_buffer[:, :SIZE, :, own]))


def test_a_pool_beside_the_kv_that_the_grid_does_not_fit_keeps_to_its_size(
    disk_rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    two = {"weights": "r1", "head_group": 2}
    disk_rig.backend(make.mha(heads=4), side={"draft": make.mha(heads=3, layers=1)}, model=two)
    assert "do not share pool draft" in caplog.text
