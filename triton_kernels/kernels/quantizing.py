"""The kernels that quantize rows on their way into a chunk, and dequantize them on their way back."""

from __future__ import annotations

import triton
import triton.language as tl

from sgkv.triton_kernels.kernels import ANYWHERE, RUNTIME
from sgkv.triton_kernels.kernels.rounding import from_e4m3, narrowed, to_e4m3, to_int8, widened


@triton.jit(do_not_specialize=RUNTIME, do_not_specialize_on_alignment=ANYWHERE)
def quantize_rows_kernel(
    addresses: tl.tensor,
    slots: tl.tensor,
    codes: tl.tensor,
    scales: tl.tensor,
    rejected: tl.tensor,
    tokens: tl.tensor,
    slot_count: tl.tensor,
    first_layer: tl.tensor,
    layers: tl.tensor,
    table_start: tl.tensor,
    table_layers: tl.tensor,
    items: tl.tensor,
    heads: tl.constexpr,
    dim: tl.constexpr,
    stride: tl.constexpr,
    page_size: tl.constexpr,
    page_bytes: tl.constexpr,
    code_start: tl.constexpr,
    code_plane: tl.constexpr,
    scale_start: tl.constexpr,
    scale_plane: tl.constexpr,
    kind: tl.constexpr,
    bfloat16: tl.constexpr,
    alignment: tl.constexpr,
    block_rows: tl.constexpr,
    block_dim: tl.constexpr,
    levels: tl.constexpr,
    smallest: tl.constexpr,
    fp8: tl.constexpr,
    to_pool: tl.constexpr,
) -> None:
    """Work through `items` tiles of `block_rows` heads of tokens of one plane and layer.

    `stride` is in elements of the pool; starts, planes and `page_bytes` in bytes of the chunk, which
    `codes` (int8) and `scales` (float32) both point to. bfloat16 goes through its int16 bits.
    """
    tiles = tl.cdiv(tokens * heads, block_rows)
    for item in range(tl.program_id(0), items, tl.num_programs(0)):
        run = item // tiles
        plane = run // layers
        layer = first_layer + run % layers
        entry = table_start + plane * table_layers + layer
        address = tl.load(addresses + entry, eviction_policy="evict_last")
        pool = tl.multiple_of(address.to(tl.pointer_type(kind)), alignment)
        row = (item % tiles) * block_rows + tl.arange(0, block_rows)
        token = row // heads
        head = row % heads
        slot = tl.load(slots + token, mask=token < tokens, other=0, eviction_policy="evict_last")
        inside = (token < tokens) & (slot >= 0) & (slot < slot_count)
        if run == 0:
            outside = (token < tokens) & (head == 0) & (inside == 0)
            refused = tl.sum(outside.to(tl.int64), axis=0)
            tl.atomic_add(rejected, refused, mask=refused > 0)
        page = (token // page_size).to(tl.int64) * page_bytes
        line = (layer * page_size + token % page_size) * heads + head
        coded = page + (code_start + plane.to(tl.int64) * code_plane) + line * dim
        scaled = scales + (page + (scale_start + plane.to(tl.int64) * scale_plane)) // 4 + line
        column = tl.arange(0, block_dim)
        mask = inside[:, None] & (column < dim)[None, :]
        there = pool + (slot * stride + head * dim)[:, None] + column[None, :]
        here = codes + coded[:, None] + column[None, :]
        if to_pool:
            raw = tl.load(here, mask=mask, other=0)
            numbers = from_e4m3(raw) if fp8 else raw.to(tl.float32)
            scale = tl.load(scaled, mask=inside, other=0.0)
            tl.store(there, narrowed(numbers * scale[:, None], bfloat16, kind), mask=mask)
        else:
            numbers = widened(tl.load(there, mask=mask, other=0), bfloat16)
            largest = tl.maximum(tl.max(tl.abs(numbers), axis=1), smallest)
            scale = tl.div_rn(largest, levels)
            quotients = tl.div_rn(numbers, tl.broadcast_to(scale[:, None], numbers.shape))
            tl.store(here, to_e4m3(quotients) if fp8 else to_int8(quotients), mask=mask)
            tl.store(scaled, scale, mask=inside)
