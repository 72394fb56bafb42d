"""The kernel that copies whole rows between a paged pool and a chunk."""

from __future__ import annotations

import triton
import triton.language as tl

from sgkv.triton_kernels.kernels import ANYWHERE, RUNTIME


@triton.jit(do_not_specialize=RUNTIME, do_not_specialize_on_alignment=ANYWHERE)
def copy_rows_kernel(
    addresses: tl.tensor,
    slots: tl.tensor,
    chunk: tl.tensor,
    rejected: tl.tensor,
    tokens: tl.tensor,
    slot_count: tl.tensor,
    first_layer: tl.tensor,
    layers: tl.tensor,
    table_start: tl.tensor,
    table_layers: tl.tensor,
    items: tl.tensor,
    row: tl.constexpr,
    stride: tl.constexpr,
    page_size: tl.constexpr,
    page_words: tl.constexpr,
    plane_start: tl.constexpr,
    plane_words: tl.constexpr,
    word: tl.constexpr,
    alignment: tl.constexpr,
    block_tokens: tl.constexpr,
    step: tl.constexpr,
    to_pool: tl.constexpr,
) -> None:
    """Work through `items` tiles of `block_tokens` rows of one plane and layer; any grid of one dimension.

    All lengths are in words of `word`; `alignment` is in bytes. An address that comes out of a table is
    never specialised, so without the hint the pool's accesses fall to 64 bits. `row`, `stride` and `step`
    are known when compiling: a bound known only at the launch doubles the registers. Columns are tiled
    by `step`; where it divides `row` the compiler drops their mask.
    """
    tiles = tl.cdiv(tokens, block_tokens)
    for item in range(tl.program_id(0), items, tl.num_programs(0)):
        run = item // tiles
        plane = run // layers
        layer = first_layer + run % layers
        entry = table_start + plane * table_layers + layer
        address = tl.load(addresses + entry, eviction_policy="evict_last")
        pool = tl.multiple_of(address.to(tl.pointer_type(word)), alignment)
        token = (item % tiles) * block_tokens + tl.arange(0, block_tokens)
        slot = tl.load(slots + token, mask=token < tokens, other=0, eviction_policy="evict_last")
        inside = (token < tokens) & (slot >= 0) & (slot < slot_count)
        if run == 0:
            refused = tl.sum(((token < tokens) & (inside == 0)).to(tl.int64), axis=0)
            tl.atomic_add(rejected, refused, mask=refused > 0)
        page = (token // page_size).to(tl.int64)
        line = layer * page_size + token % page_size
        packed = page * page_words + (plane_start + plane.to(tl.int64) * plane_words) + line * row
        for start in tl.static_range(0, row, step):
            column = start + tl.arange(0, step)
            mask = inside[:, None] & (column < row)[None, :]
            there = pool + slot[:, None] * stride + column[None, :]
            here = chunk + packed[:, None] + column[None, :]
            if to_pool:
                tl.store(there, tl.load(here, mask=mask), mask=mask)
            else:
                tl.store(here, tl.load(there, mask=mask), mask=mask)
