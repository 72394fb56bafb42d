"""What HiCache has stored, in whatever order its host pool has, is a hit for the linker, and the reverse."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from sglang.srt.runtime_context import get_context

from tests.linker.conftest import LinkerRig, fill, kv, of_two, rows, same
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, chain, read, write
from tests.sglang.pools import Pools, page_bytes

KINDS = {
    **{f"mha {layout}": (make.mha, layout) for layout in make.MHA_LAYOUTS},
    **{f"asymmetric {layout}": (make.asymmetric, layout) for layout in make.ASYMMETRIC_LAYOUTS},
    **{f"mla {layout}": (make.mla, layout) for layout in make.MLA_LAYOUTS},
}


@pytest.fixture(params=KINDS)
def pools(request: pytest.FixtureRequest) -> Pools:
    build, layout = KINDS[request.param]
    return build(layout)


@pytest.fixture
def hicache(linkers: LinkerRig) -> Iterator[Rig]:
    """HiCache's side of the linkers' folder."""
    rig = Rig(linkers.folder, tiers="disk")
    with get_context().override_server_args():
        yield rig
    for backend in rig.opened:
        backend.close()


def hicache_place(pools: Pools) -> dict[str, object]:
    return {"is_mla_model": not hasattr(pools.device, "k_buffer")}


def on_device(pools: Pools, pages: range) -> list[bytes]:
    """Device pages in the order that a page has in a host pool that goes layer by layer."""
    layers = rows(pools.device, pages)
    size = pools.device.page_size
    return [
        b"".join(layer[at * size : (at + 1) * size].contiguous().numpy().tobytes() for layer in layers)
        for at in range(len(pages))
    ]


def test_the_linker_reads_what_hicache_wrote(linkers: LinkerRig, hicache: Rig, pools: Pools):
    make.fill(pools, 1)
    backend, keys = hicache.backend(pools, hicache_place(pools)), chain(6)
    assert all(write(backend, pools, keys, range(6)))
    linked = linkers.open(pools.device, names="disk")
    assert linked.lookup([kv(keys)]) == [1, 2, 3, 4, 5, 6]
    assert linked.load([kv(keys, range(3, 9))])
    assert on_device(pools, range(3, 9)) == in_layer_order(pools, range(6))


def test_hicache_reads_what_the_linker_wrote(linkers: LinkerRig, hicache: Rig, pools: Pools):
    fill(pools.device, 1)
    linked, keys = linkers.open(pools.device, names="disk"), chain(6)
    assert linked.offload([kv(keys, range(1, 7))])
    backend = hicache.backend(pools, hicache_place(pools))
    assert backend.batch_exists(keys) == 6
    make.blank(pools)
    assert all(read(backend, pools, keys, range(6)))
    assert in_layer_order(pools, range(6)) == on_device(pools, range(1, 7))


def test_what_hicache_has_stored_is_not_written_again(linkers: LinkerRig, hicache: Rig):
    pools = make.mha("page_head")
    make.fill(pools, 1)
    backend, keys = hicache.backend(pools), chain(6)
    assert all(write(backend, pools, keys, range(6)))
    linked = linkers.open(pools.device, names="disk")
    assert linked.offload([kv(keys, range(1, 7))])
    assert linked.counted("written_bytes", "disk") == 0
    assert linked.counted("offload_present_pages") == 6


def test_two_linkers_of_one_folder(linkers: LinkerRig, tmp_path: Path):
    pool = make.mha().device
    fill(pool, 1)
    one, two, keys = linkers.open(pool, names="disk"), linkers.open(pool), chain(4)
    written = rows(pool, range(1, 5))
    assert one.offload([kv(keys, range(1, 5))])
    assert two.lookup([kv(keys)]) == [1, 2, 3, 4]
    assert two.load([kv(keys, range(9, 13))])
    assert same(rows(pool, range(9, 13)), written)


def in_layer_order(pools: Pools, pages: range) -> list[bytes]:
    """Host pages as `on_device` shows device pages."""
    return [_in_layer_order(pools, page_bytes(pools.host, page)) for page in pages]


def _in_layer_order(pools: Pools, page: bytes) -> bytes:
    host, size = pools.host, pools.host.page_size
    planes = [host.head_dim, host.v_head_dim] if hasattr(host, "v_head_dim") else [host.kv_cache_dim]
    heads = host.head_num if hasattr(host, "head_num") and len(planes) == 2 else 1
    axes = {
        "layer_first": ("layer", "token", "head"),
        "page_first": ("token", "layer", "head"),
        "page_first_direct": ("layer", "token", "head"),
        "page_head": ("head", "token", "layer"),
    }[host.layout]
    lengths = {"layer": make.LAYERS, "token": size, "head": heads}
    raw, at, found = torch.frombuffer(bytearray(page), dtype=torch.uint8), 0, b""
    for row in planes:
        width = row * host.dtype.itemsize
        count = make.LAYERS * size * heads * width
        plane = raw[at : at + count].view(*(lengths[axis] for axis in axes), width)
        wanted = [axes.index(axis) for axis in ("layer", "token", "head")]
        found += plane.permute(*wanted, 3).contiguous().numpy().tobytes()
        at += count
    return found


def test_over_a_grid_the_linker_reads_its_heads_of_what_one_rank_wrote(linkers: LinkerRig, hicache: Rig):
    """Cells do not lie together in a page of the device: they come by way of the staging memory."""
    grid = {"model": {"weights": "r1", "head_group": 1}}
    whole, keys = make.mha(heads=4), chain(6)
    make.fill(whole, 1)
    assert all(write(hicache.backend(whole, **grid), whole, keys, range(6)))
    half = make.mha("layer_first", heads=2)
    linked = linkers.open(half.device, names="disk", place=of_two(1), **grid)
    assert linked.lookup([kv(keys)]) == [1, 2, 3, 4, 5, 6]
    assert linked.load([kv(keys, range(3, 9))])
    model = whole.host.kv_buffer[:, : 6 * 16, :, 2:].transpose(1, 2).flatten(0, 1)
    assert same(rows(half.device, range(3, 9)), list(model.contiguous().view(torch.uint8)))
