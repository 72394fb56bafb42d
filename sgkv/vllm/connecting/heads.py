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


class HeadPages(DevicePages):
    """The tensors of one KV cache group whose keys and values are fused. Slots are rows of one head."""

    def __init__(self, tensors: Sequence[torch.Tensor], shape: RowShape, page_tokens: int) -> None:
        """Raises ValueError for tensors that are no pool of equal rows."""
        self._heads = shape.heads
        width = 2 * shape.head_dim
        strides = tensors[0].stride()
        if any(stride % width for stride in strides[:3]) or strides[3] != 1:
            raise ValueError(f"KV with strides {strides} is no pool of rows of {width} elements")
        self._strides = [stride // width for stride in strides[:3]]
        self._block = tensors[0].shape[2]
        keys = [_rows(tensor, 0, shape.head_dim) for tensor in tensors]
        values = [_rows(tensor, shape.head_dim, shape.head_dim) for tensor in tensors]
        super().__init__(keys, values, page_size=page_tokens * shape.heads)

    def rows_of(self, slots: torch.Tensor) -> torch.Tensor:
        """On the device: the row of each head of each token slot, -1 (passed over) where that is -1."""
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
