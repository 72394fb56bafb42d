"""vLLM's KV tensors on a GPU for the Triton kernels: every head of a token is a row of its own.

Keys and values of a head lie side by side and fill ``2 * head_dim`` elements. All strides of vLLM's
layouts (LBNHC, LBHNC, BLNHC, ...) are multiples of that, so that any of them is a pool of such rows, and
a page of the canonical order is `page tokens * heads` of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sgkv.transfer.pages import DevicePages
from sgkv.vllm.rows import RowShape


class HeadPages:
    """The tensors of one KV cache group whose keys and values are fused; with the slots of `BlockPages`.

    Rows are made of slots on the stream that moves them. Slots of -1 are passed over by the kernels.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], shape: RowShape, page_tokens: int) -> None:
        """Raises ValueError for tensors that are no pool of equal rows."""
        width, strides = 2 * shape.head_dim, tensors[0].stride()
        if any(stride % width for stride in strides[:3]) or strides[3] != 1:
            raise ValueError(f"KV with strides {strides} is no pool of rows of {width} elements")
        self.page_size = page_tokens
        self._strides = [stride // width for stride in strides[:3]]
        self._block = tensors[0].shape[2]
        self._heads = shape.heads
        keys = [_rows(tensor, 0, shape.head_dim) for tensor in tensors]
        values = [_rows(tensor, shape.head_dim, shape.head_dim) for tensor in tensors]
        self._rows = DevicePages(keys, values, page_size=page_tokens * shape.heads)
        self.layers, self.device = self._rows.layers, self._rows.device
        self.page_bytes, self.layer_bytes = self._rows.page_bytes, self._rows.layer_bytes
        self.rejected: torch.Tensor | None = None
        """Not looked at: slots of -1 are meant to be passed over."""

    def layer_runs(self, layer: int) -> list[slice]:
        """Where one layer lies in a page: a run in each plane."""
        return self._rows.layer_runs(layer)

    def pack(self, slots: torch.Tensor, buffer: torch.Tensor) -> None:
        """Copy whole pages into `buffer`."""
        self._rows.pack(self.rows_of(slots), buffer)

    def unpack(self, slots: torch.Tensor, buffer: torch.Tensor) -> None:
        """Fill the wanted tokens of whole pages from `buffer`."""
        self._rows.unpack(self.rows_of(slots), buffer)

    def unpack_layer(self, layer: int, slots: torch.Tensor, buffer: torch.Tensor) -> None:
        """Fill one layer of the pages from `buffer`, which is ``[page][plane][token][head][dim]``."""
        self._rows.unpack_layer(layer, self.rows_of(slots), buffer)

    def rows_of(self, slots: torch.Tensor) -> torch.Tensor:
        """On the device: the row of each head of each token, -1 where its slot is -1."""
        slots = slots.to(self.device)
        by_block, by_head, by_token = self._strides
        first = slots // self._block * by_block + slots % self._block * by_token
        rows = first[:, None] + torch.arange(self._heads, device=self.device) * by_head
        return torch.where(slots[:, None] < 0, -1, rows).flatten()


def _rows(tensor: torch.Tensor, offset: int, dim: int) -> torch.Tensor:
    """``[rows, dim]``: keys or values of one head each, as far as the tensor reaches."""
    width = 2 * dim
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape[:3], tensor.stride(), strict=False))
    start = tensor.storage_offset() + offset
    return tensor.as_strided((last // width + 1, dim), (width, 1), start)
