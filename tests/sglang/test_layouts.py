"""Written with one host layout, read with another: converted where the bytes can be, else missed."""

from itertools import product

import pytest
import torch

from sgkv.sglang.cpu import install as install_row_copies
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, published, read, transfer, write
from tests.sglang.copies import device_rows, from_device, random_device, to_device
from tests.sglang.pools import Pools, fill, page_bytes, slots

PAGES = 7


@pytest.fixture(scope="module", autouse=True)
def row_copies() -> None:
    install_row_copies()


def check_conversion(rig: Rig, writer: Pools, reader: Pools) -> None:
    """Device to host, store, other server's host, device: the rows that attention reads are equal."""
    size = writer.host.page_size
    keys = chain(PAGES, size)
    random_device(writer)
    from_device(writer, range(1, 1 + PAGES), range(PAGES))
    assert write(rig.backend(writer), writer, keys, range(PAGES)) == [True] * PAGES
    backend = rig.backend(reader)
    assert backend.batch_exists(keys, after()) == PAGES
    assert read(backend, reader, keys, range(8, 8 + PAGES)) == [True] * PAGES
    to_device(reader, range(8, 8 + PAGES), range(2, 2 + PAGES))
    for was, now in zip(
        device_rows(writer, range(1, 1 + PAGES)), device_rows(reader, range(2, 2 + PAGES)), strict=True
    ):
        assert was.equal(now)


@pytest.mark.parametrize(("written", "wanted"), list(product(make.MHA_LAYOUTS, repeat=2)))
def test_attention_heads(disk_rig: Rig, written: str, wanted: str) -> None:
    check_conversion(disk_rig, make.mha(written), make.mha(wanted))


@pytest.mark.parametrize(("written", "wanted"), list(product(make.MLA_LAYOUTS, repeat=2)))
def test_latent_rows(disk_rig: Rig, written: str, wanted: str) -> None:
    check_conversion(disk_rig, make.mla(written), make.mla(wanted))


@pytest.mark.parametrize(("written", "wanted"), list(product(make.ASYMMETRIC_LAYOUTS, repeat=2)))
def test_keys_and_values_of_different_width(disk_rig: Rig, written: str, wanted: str) -> None:
    check_conversion(disk_rig, make.asymmetric(written), make.asymmetric(wanted))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2], ids=str)
def test_narrow_values_are_moved_and_never_interpreted(disk_rig: Rig, dtype: torch.dtype) -> None:
    writer, reader = make.mha("page_head", dtype=dtype), make.mha("layer_first", dtype=dtype)
    check_conversion(disk_rig, writer, reader)


def test_flat_pages_are_converted_too(disk_rig: Rig) -> None:
    """Written by zero copy from one layout, read by the generic path of another."""
    writer, reader = make.mha("page_first"), make.mha("page_head")
    (key,) = chain(1)
    random_device(writer)
    from_device(writer, [3], [0])
    write(disk_rig.backend(writer), writer, [key], [0])
    into = reader.host.get_dummy_flat_data_page()
    assert disk_rig.backend(reader).get(key, into) is into
    reader.host.set_from_flat_data_page(0, into)
    to_device(reader, [0], [5])
    for was, now in zip(device_rows(writer, [3]), device_rows(reader, [5]), strict=True):
        assert was.equal(now)


def test_what_was_converted_stays_right_when_it_is_read_from_memory(rig: Rig) -> None:
    """The first read promotes into the cpu tier, in the reader's order; the second comes from there."""
    writer, reader = make.mha("layer_first"), make.mha("page_first")
    keys = chain(4)
    fill(writer, seed=1)
    first = rig.backend(writer)
    write(first, writer, keys, range(4))
    first.close()
    backend = rig.backend(reader)
    assert read(backend, reader, keys, range(4)) == [True] * 4
    assert backend.store.flush(30)
    assert read(backend, reader, keys, range(4, 8)) == [True] * 4
    assert backend.store.counters.get("hit_pages", "cpu") == 4
    assert [page_bytes(reader.host, page) for page in range(4)] == [
        page_bytes(reader.host, page) for page in range(4, 8)
    ]


OTHER_SHAPES = {
    "heads": lambda: make.mha(heads=4, dim=16),
    "layers": lambda: make.mha(layers=2),
    "width of values": make.asymmetric,
    "latent": make.mla,
    "page size": lambda: make.mha(page_size=32),
    "dtype": lambda: make.mha(dtype=torch.bfloat16),
}


@pytest.mark.parametrize("other", OTHER_SHAPES.values(), ids=OTHER_SHAPES.keys())
def test_another_shape_never_hits(disk_rig: Rig, other) -> None:
    writer, reader = make.mha(), other()
    keys = chain(8)
    write(disk_rig.backend(writer), writer, keys, range(8))
    assert disk_rig.backend(reader).batch_exists(keys, after()) == 0


def test_recurrent_state_of_another_shape_misses(disk_rig: Rig) -> None:
    """As many bytes, other runs: opaque bytes fit only their own kind."""
    kv = make.mha()
    keys = chain(1)
    at = slots([0], 1)
    narrow, wide = make.mamba(state=8), make.mamba(state=16)
    backend = disk_rig.backend(kv, side={"mamba": narrow})
    assert backend.batch_set_v2([transfer("mamba", keys, at)], after()) == {"mamba": [True]}
    backend = disk_rig.backend(kv, side={"mamba": wide})
    assert backend.batch_get_v2([transfer("mamba", keys, at)], after()) == {"mamba": [False]}


def test_recurrent_state_of_another_dtype_misses(disk_rig: Rig) -> None:
    """Both are two bytes a value, and SGLang names the pool by its other buffers' dtype."""
    kv, keys = make.mha(), chain(1)
    mamba = [transfer("mamba", keys, slots([0], 1))]
    half, bfloat = make.mamba(dtype=torch.float16), make.mamba(dtype=torch.bfloat16)
    assert disk_rig.backend(kv, side={"mamba": half}).batch_set_v2(mamba, after()) == {"mamba": [True]}
    assert disk_rig.backend(kv, side={"mamba": half}).batch_get_v2(mamba, after()) == {"mamba": [True]}
    assert disk_rig.backend(kv, side={"mamba": bfloat}).batch_get_v2(mamba, after()) == {"mamba": [False]}


def test_both_kinds_of_fp4_in_a_pool_of_an_unknown_kind_never_meet(disk_rig: Rig) -> None:
    """Such a pool holds plain bytes; only the configuration says what they mean."""
    kv, keys = make.mha(), chain(2)
    indexed = transfer("indexer", keys, slots(range(2), 64))
    for kind, expected in (("nvfp4", [True, True]), ("fp4_mx_block16", [False, False])):
        with published(model_path="/nowhere", kv_cache_dtype=kind):
            backend = disk_rig.backend(kv, side={"indexer": make.indexer()[1]})
            if kind == "nvfp4":
                assert backend.batch_set_v2([indexed], after()) == {"indexer": [True, True]}
            assert backend.batch_get_v2([indexed], after()) == {"indexer": expected}


def test_flat_pages_of_an_unknown_kind_of_pool_are_refused(disk_rig: Rig, caplog) -> None:
    """Zero copy names its runs K, V, K, V; a flat page has every K first, and nothing would tell."""
    pools, keys = make.other("layer_first"), chain(2)
    backend = disk_rig.backend(pools)
    assert write(backend, pools, keys[:1], [0]) == [True]
    assert read(backend, pools, keys[:1], [1]) == [True]
    into = [pools.host.get_dummy_flat_data_page() for _ in keys]
    assert backend.batch_get(keys, into) == [None, None]
    assert not backend.batch_set(keys[1:], [pools.host.get_data_page(0)])
    assert sum("zero-copy" in record.message for record in caplog.records) == 1


def test_a_pool_that_cannot_describe_its_pages_is_said_once_and_missed(disk_rig: Rig, caplog) -> None:
    """Mamba with side states refuses zero copy; SGLang registers its pools more than once."""
    kv, state = make.mha(), make.mamba()
    state.host.slot_state_device_tensors = [torch.zeros(2)]
    backend = disk_rig.backend(kv, side={"mamba": state})
    assert sum("cannot be stored" in record.message for record in caplog.records) == 1
    keys, at = chain(2), slots([0, 1], 1)
    assert backend.batch_set_v2([transfer("mamba", keys, at)]) == {"mamba": [False, False]}
    assert backend.batch_exists_v2(keys, [transfer("mamba", keys, trailing=True)]).kv_hit_pages == 0
    assert backend.batch_get_v2([transfer("mamba", keys, at)]) == {"mamba": [False, False]}
    assert backend.store.counters.get("miss_pages", "unsupported") == 2
