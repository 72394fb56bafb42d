"""The torch row copies move exactly the bits asked for, in every pool, layout and dtype of SGLang's."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sgkv.sglang.cpu import install
from tests.sglang import pools as make
from tests.sglang.pools import Pools, blank, slots

PAGE, PAGES = 4, 8
DTYPES = [torch.float32, torch.bfloat16]
PAGE_LISTS = st.permutations(range(1, PAGES)).flatmap(
    lambda pages: st.integers(1, len(pages)).map(lambda count: pages[:count])
)

install()


def io_backends(layout: str) -> Sequence[str]:
    """Which of SGLang's two ways to copy exist for a layout of attention pools."""
    return {"layer_first": ("kernel", "direct"), "page_first_direct": ("direct",)}.get(layout, ("kernel",))


ATTENTION = [
    pytest.param(build, layout, io, id=f"{build.__name__}-{layout}-{io}")
    for build, layouts in (
        (make.mha, make.MHA_LAYOUTS),
        (make.asymmetric, make.ASYMMETRIC_LAYOUTS),
        (make.mla, make.MLA_LAYOUTS),
    )
    for layout in layouts
    for io in io_backends(layout)
]


def planes(pools: Pools) -> list[torch.Tensor]:
    """Device rows as integers, one matrix a layer and K or V."""
    device = pools.device
    layers = [*device.k_buffer, *device.v_buffer] if hasattr(device, "k_buffer") else device.kv_buffer
    return [layer.flatten(1).view(torch.uint8) for layer in layers]


def host_rows(host: Any, buffer: torch.Tensor, layer: int, slot: int) -> torch.Tensor:
    """What a layout says is the row of a token, computed apart from the copies."""
    page, offset = divmod(slot, PAGE)
    row = {
        "layer_first": lambda: buffer[layer, slot],
        "page_first": lambda: buffer[slot, layer],
        "page_first_direct": lambda: buffer[page, layer, offset],
        "page_head": lambda: buffer[page, :, offset, layer],
    }[host.layout]()
    return row.contiguous().flatten().view(torch.uint8)


def host_planes(pools: Pools) -> Callable[[int, int], torch.Tensor]:
    """(plane, slot) -> row, planes numbered as in `planes`."""
    host, layers = pools.host, make.LAYERS
    buffers = [host.kv_buffer] if hasattr(pools.device, "kv_buffer") else [host.k_buffer, host.v_buffer]
    return lambda plane, slot: host_rows(host, buffers[plane // layers], plane % layers, slot)


def randomise(tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        tensor.copy_(torch.randint(0, 256, tensor.shape, dtype=torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("build", "layout", "io"), ATTENTION)
@settings(max_examples=8)
@given(data=st.data())
def test_attention_rows_go_where_the_layout_says_and_come_back(data, build, layout, io, dtype):
    pools = build(layout, PAGE, pages=PAGES, dtype=dtype)
    device_pages, host_pages = data.draw(PAGE_LISTS), data.draw(PAGE_LISTS)
    count = min(len(device_pages), len(host_pages))
    device_slots, host_slots = (slots(pages[:count], PAGE) for pages in (device_pages, host_pages))
    randomise(planes(pools))
    blank(pools)
    before = [plane.clone() for plane in planes(pools)]

    pools.host.backup_from_device_all_layer(None, host_slots, device_slots, io)
    row = host_planes(pools)
    copied = dict(zip(host_slots.tolist(), device_slots.tolist(), strict=True))
    for plane, rows in enumerate(before):
        for slot in range(PAGES * PAGE):
            assert row(plane, slot).equal(rows[copied[slot]] if slot in copied else torch.zeros_like(rows[0]))

    randomise(planes(pools))
    others = [plane.clone() for plane in planes(pools)]
    for layer in range(make.LAYERS):
        pools.host.load_to_device_per_layer(None, host_slots, device_slots, layer, io)
    for was, other, now in zip(before, others, planes(pools), strict=True):
        other[device_slots] = was[device_slots]
        assert now.equal(other)


@pytest.mark.parametrize("io", ["kernel", "direct"])
@pytest.mark.parametrize("layout", make.MAMBA_LAYOUTS)
@settings(max_examples=8)
@given(data=st.data())
def test_mamba_states_go_to_their_slots_and_come_back(data, layout, io):
    pools = make.mamba(layout, slots=PAGES)
    device_slots = torch.tensor(data.draw(PAGE_LISTS))
    host_slots = torch.tensor(data.draw(st.permutations(range(PAGES)))[: len(device_slots)])
    states = [pools.device.temporal, *pools.device.conv]
    raw = [state.flatten(2).view(torch.uint8) for state in states]
    randomise(raw)
    before = [state.clone() for state in raw]

    pools.host.backup_from_device_all_layer(None, host_slots, device_slots, io)
    for host, state in zip([pools.host.temporal_buffer, *pools.host.conv_buffer], before, strict=True):
        stored = host.flatten(2).view(torch.uint8)[host_slots]
        assert stored.transpose(0, 1).equal(state[:, device_slots])

    randomise(raw)
    for layer in range(make.LAYERS):
        pools.host.load_to_device_per_layer(None, host_slots, device_slots, layer, io)
    for now, was in zip(raw, before, strict=True):
        assert now[:, device_slots].equal(was[:, device_slots])


def test_rows_that_are_not_packed_are_refused():
    from sgkv.sglang.cpu.rows import rows_of

    with pytest.raises(ValueError, match="not packed"):
        rows_of(torch.zeros(4, 8)[:, :4], 16)
