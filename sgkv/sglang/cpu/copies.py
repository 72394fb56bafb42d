"""Host <-> device row copies of SGLang's HiCache in torch, for device pools that live on the CPU.

SGLang 0.5.23 takes these operations from `sgl_kernel.kvcacheio`, which has no CPU build; the host
pools in ``mem_cache/pool_host/{mha,mla,mamba}.py`` call them by name and keyword. Signatures and
meaning follow those call sites. In the names ``lf`` is layer first, ``pf`` page first and ``ph``
page head. Where an operation takes addresses they are a uint64 tensor with one a layer; the other
arguments are tensors on the CPU and indices are int64 token slots. Every operation returns when
its bytes are copied, whatever thread it runs in.

Here: operations on one buffer a layer. `copies_kv` has those that take K and V together.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from sgkv.sglang.cpu.rows import as_integers, rows_of, rows_reached


def transfer_kv_per_layer_mla(
    src: Tensor, dst: Tensor, src_indices: Tensor, dst_indices: Tensor, item_size: int
) -> None:
    """One layer, layer first on both sides (or one Mamba state buffer)."""
    rows_of(dst, item_size)[dst_indices] = rows_of(src, item_size)[src_indices]


def transfer_kv_per_layer_mla_pf_lf(
    src: Tensor,
    dst: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    layer_id: int,
    item_size: int,
    src_layout_dim: int,
) -> None:
    """One layer out of page-first host rows of `src_layout_dim` bytes."""
    host = _page_first(src, item_size, src_layout_dim // item_size)
    rows_of(dst, item_size)[dst_indices] = host[src_indices, layer_id]


def transfer_kv_all_layer_mla(
    src_layers: Tensor,
    dst_layers: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    num_layers: int,
) -> None:
    """Every layer, from addresses to addresses."""
    for src, dst in zip(src_layers.tolist(), dst_layers.tolist(), strict=True):
        rows = rows_reached(src, src_indices, item_size)[src_indices]
        rows_reached(dst, dst_indices, item_size)[dst_indices] = rows


def transfer_kv_all_layer_mla_lf_pf(
    src_layers: Tensor,
    dst: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    dst_layout_dim: int,
    num_layers: int,
) -> None:
    """Every layer, from addresses into page-first host rows of `dst_layout_dim` bytes."""
    host = _page_first(dst, item_size, dst_layout_dim // item_size)
    for layer, src in enumerate(src_layers.tolist()):
        host[dst_indices, layer] = rows_reached(src, src_indices, item_size)[src_indices]


def transfer_kv_direct(
    src_layers: Sequence[Tensor],
    dst_layers: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    page_size: int,
) -> None:
    """Layer first on both sides; the rows of either may be strided."""
    for src, dst in zip(src_layers, dst_layers, strict=True):
        as_integers(dst)[dst_indices] = as_integers(src)[src_indices]


def transfer_kv_per_layer_direct_pf_lf(
    src_ptrs: Sequence[Tensor],
    dst_ptrs: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    layer_id: int,
    page_size: int,
) -> None:
    """One layer out of host pages (page, layer, token, ...)."""
    pages, tokens = src_indices // page_size, src_indices % page_size
    for src, dst in zip(src_ptrs, dst_ptrs, strict=True):
        as_integers(dst)[dst_indices] = as_integers(src)[pages, layer_id, tokens]


def transfer_kv_all_layer_direct_lf_pf(
    src_ptrs: Sequence[Tensor],
    dst_ptrs: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    page_size: int,
) -> None:
    """Every layer into host pages (page, layer, token, ...); the sources of `dst_ptrs[0]` come first."""
    pages, tokens = dst_indices // page_size, dst_indices % page_size
    layers = len(src_ptrs) // len(dst_ptrs)
    for index, src in enumerate(src_ptrs):
        host = as_integers(dst_ptrs[index // layers])
        host[pages, index % layers, tokens] = as_integers(src)[src_indices]


def transfer_kv_mamba_pf_lf(
    src: Tensor,
    dst: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    layer_id: int,
    item_size: int,
    src_layout_dim: int,
) -> None:
    """One layer of a Mamba state out of host slots of `src_layout_dim` bytes."""
    transfer_kv_per_layer_mla_pf_lf(src, dst, src_indices, dst_indices, layer_id, item_size, src_layout_dim)


def transfer_kv_mamba_lf_pf(
    src_ptrs: Tensor,
    dst: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    dst_layout_dim: int,
    num_layers: int,
) -> None:
    """Every layer of a Mamba state, from addresses into host slots of `dst_layout_dim` bytes."""
    transfer_kv_all_layer_mla_lf_pf(
        src_ptrs, dst, src_indices, dst_indices, item_size, dst_layout_dim, num_layers
    )


def _page_first(host: Tensor, item_size: int, layers: int) -> Tensor:
    return rows_of(host, item_size).unflatten(0, (-1, layers))
