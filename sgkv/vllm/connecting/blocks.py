"""vLLM's KV tensors as pages in the order that chunks have.

vLLM hands a connector one tensor a layer, a logical ``[blocks, heads, tokens, 2 * head_dim]`` whatever its
strides are (0.29 and later). Keys and values are views of it that differ by `Packing`; moving a page is
one gather or scatter for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sgkv.vllm.rows import Packing, RowShape


class BlockPages:
    """The tensors of one KV cache group, in plain torch. Any thread; used as `DevicePages` are.

    Slots are int64, ``block * tokens of a block + token``, one a token and `page_size` a page; a slot of
    -1 stands for a token that is not wanted. Buffers are dense uint8 on the device, whole pages of
    ``[plane][layer][token][head][dim]``. Copies are asynchronous on the device's current stream.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], shape: RowShape, page_tokens: int) -> None:
        """Raises ValueError for tensors that are not what `shape` says."""
        first = tensors[0]
        wanted = (shape.heads, 2 * shape.head_dim, shape.layers, shape.item)
        found = (first.shape[1], first.shape[-1], len(tensors), first.element_size())
        if first.dim() != 4 or found != wanted or any(each.shape != first.shape for each in tensors):
            raise ValueError(f"KV of (heads, width, layers, bytes) {wanted} was expected, not {found}")
        self.page_size = page_tokens
        self.layers = shape.layers
        self.device = first.device
        self._dtype = first.dtype
        self._block = first.shape[2]
        """Tokens of a block of the kernels, of which vLLM's own is a multiple."""
        self._planes = [_planes(each, shape.packing) for each in tensors]
        self._page = (2, shape.layers, page_tokens, shape.heads, shape.head_dim)
        self.layer_bytes = 2 * page_tokens * shape.heads * shape.head_dim * shape.item
        self.page_bytes = shape.layers * self.layer_bytes
        self.rejected: torch.Tensor | None = None
        """Not looked at: slots of -1 are meant to be passed over."""

    def layer_runs(self, layer: int) -> list[slice]:
        """Where one layer lies in a page: a run in each plane."""
        size, plane = self.layer_bytes // 2, self.page_bytes // 2
        return [slice(at + layer * size, at + (layer + 1) * size) for at in (0, plane)]

    def pack(self, slots: torch.Tensor, buffer: torch.Tensor) -> None:
        """Copy whole pages into `buffer`."""
        pages = self._pages(slots, buffer, self._page)
        block, token = self._places(slots)
        for layer, planes in enumerate(self._planes):
            for at, plane in enumerate(planes):
                target = pages[:, at, layer]
                target.copy_(plane[block, token].view(target.shape))

    def unpack(self, slots: torch.Tensor, buffer: torch.Tensor) -> None:
        """Fill the wanted tokens of whole pages from `buffer`."""
        pages = self._pages(slots, buffer, self._page)
        for layer in range(self.layers):
            self._fill(layer, slots, pages[:, :, layer])

    def unpack_layer(self, layer: int, slots: torch.Tensor, buffer: torch.Tensor) -> None:
        """Fill one layer of the pages from `buffer`, which is ``[page][plane][token][head][dim]``."""
        self._fill(layer, slots, self._pages(slots, buffer, (2, *self._page[2:])))

    def _fill(self, layer: int, slots: torch.Tensor, pages: torch.Tensor) -> None:
        wanted = slots >= 0
        block, token = self._places(slots[wanted])
        for at, plane in enumerate(self._planes[layer]):
            plane[block, token] = pages[:, at].flatten(0, 1)[wanted]

    def _pages(self, slots: torch.Tensor, buffer: torch.Tensor, page: Sequence[int]) -> torch.Tensor:
        return buffer.view(self._dtype).view(len(slots) // self.page_size, *page)

    def _places(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        on_device = slots.to(self.device)
        return on_device // self._block, on_device % self._block


def _planes(tensor: torch.Tensor, packing: Packing) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of one layer as views ``[block, token, head, dim]``."""
    blocks, heads, tokens, width = tensor.shape
    dim = width // 2
    if packing is Packing.FUSED:
        by_token = tensor.transpose(1, 2)
        return by_token[..., :dim], by_token[..., dim:]
    halves = tensor.view(blocks, heads, 2, tokens * dim)
    keys = halves[:, :, 0].view(blocks, heads, dim, tokens).permute(0, 3, 1, 2)
    return keys, halves[:, :, 1].view(blocks, heads, tokens, dim).transpose(1, 2)


def slots_of(table: Sequence[int], block_tokens: int, first: int, stop: int, wanted: range) -> torch.Tensor:
    """Slots of the tokens `first` to `stop` of a request, -1 for those outside `wanted` or in no block.

    `table` begins with the block that holds `first`.
    """
    tokens = torch.arange(first, stop)
    blocks = torch.tensor(table, dtype=torch.int64)[tokens // block_tokens - first // block_tokens]
    usable = (blocks != 0) & (tokens >= wanted.start) & (tokens < wanted.stop)
    return torch.where(usable, blocks * block_tokens + tokens % block_tokens, -1)
