"""The kernel that turns keys, where they lie in a pool, to other positions."""

from __future__ import annotations

import triton
import triton.language as tl

from sgkv.triton_kernels.kernels import ANYWHERE, RUNTIME
from sgkv.triton_kernels.kernels.rounding import narrowed, widened


@triton.jit(do_not_specialize=RUNTIME, do_not_specialize_on_alignment=ANYWHERE)
def rotate_keys_kernel(
    addresses: tl.tensor,
    slots: tl.tensor,
    cosines: tl.tensor,
    sines: tl.tensor,
    rejected: tl.tensor,
    tokens: tl.tensor,
    slot_count: tl.tensor,
    first_layer: tl.tensor,
    items: tl.tensor,
    heads: tl.constexpr,
    dim: tl.constexpr,
    stride: tl.constexpr,
    first: tl.constexpr,
    half: tl.constexpr,
    interleaved: tl.constexpr,
    kind: tl.constexpr,
    bfloat16: tl.constexpr,
    alignment: tl.constexpr,
    block_rows: tl.constexpr,
    block_half: tl.constexpr,
) -> None:
    """Work through `items` tiles of `block_rows` heads of tokens of one layer; lengths are in elements.

    The numbers of a pair lie side by side (`interleaved`) or `half` apart. Side by side they are read as
    one run and taken apart in registers, since every other element could not be read widely.
    """
    column = tl.arange(0, block_half)
    turned = (column < half)[None, :]
    cosine = tl.load(cosines + column, mask=column < half, other=0.0, eviction_policy="evict_last")[None, :]
    sine = tl.load(sines + column, mask=column < half, other=0.0, eviction_policy="evict_last")[None, :]
    tiles = tl.cdiv(tokens * heads, block_rows)
    for item in range(tl.program_id(0), items, tl.num_programs(0)):
        run = item // tiles
        address = tl.load(addresses + first_layer + run, eviction_policy="evict_last")
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
        start = pool + (slot * stride + (head * dim + first))[:, None]
        if interleaved:
            both = tl.arange(0, 2 * block_half)
            mask = inside[:, None] & (both < 2 * half)[None, :]
            pairs = widened(tl.load(start + both[None, :], mask=mask, other=0), bfloat16)
            one, other = tl.split(tl.reshape(pairs, (block_rows, block_half, 2)))
            turned_pairs = tl.join(one * cosine - other * sine, other * cosine + one * sine)
            result = tl.reshape(turned_pairs, (block_rows, 2 * block_half))
            tl.store(start + both[None, :], narrowed(result, bfloat16, kind), mask=mask)
        else:
            mask = inside[:, None] & turned
            one = widened(tl.load(start + column[None, :], mask=mask, other=0), bfloat16)
            other = widened(tl.load(start + (half + column)[None, :], mask=mask, other=0), bfloat16)
            one_turned = narrowed(one * cosine - other * sine, bfloat16, kind)
            other_turned = narrowed(other * cosine + one * sine, bfloat16, kind)
            tl.store(start + column[None, :], one_turned, mask=mask)
            tl.store(start + (half + column)[None, :], other_turned, mask=mask)
