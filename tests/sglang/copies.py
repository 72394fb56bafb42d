"""Pages between SGLang's device and host pools, by its own copies of rows."""

from collections.abc import Sequence
from typing import Any

import torch

from tests.sglang.pools import Pools, slots

IO = {"layer_first": "kernel", "page_first": "kernel", "page_first_direct": "direct", "page_head": "kernel"}
"""Which of SGLang's copies between device and host takes which layout."""


def device_layers(device: Any) -> list[torch.Tensor]:
    return [*device.k_buffer, *device.v_buffer] if hasattr(device, "k_buffer") else list(device.kv_buffer)


def device_rows(pools: Pools, pages: Sequence[int]) -> list[torch.Tensor]:
    """What attention would read: every layer's rows of these device pages, as bytes."""
    at = slots(pages, pools.host.page_size)
    return [layer[at].contiguous().view(torch.uint8) for layer in device_layers(pools.device)]


def random_device(pools: Pools) -> None:
    for layer in device_layers(pools.device):
        raw = layer.view(torch.uint8)
        raw.copy_(torch.randint(0, 256, raw.shape, dtype=torch.uint8))


def from_device(pools: Pools, device: Sequence[int], host: Sequence[int]) -> None:
    size, io = pools.host.page_size, IO[pools.host.layout]
    pools.host.backup_from_device_all_layer(None, slots(host, size), slots(device, size), io)


def to_device(pools: Pools, host: Sequence[int], device: Sequence[int]) -> None:
    size, io = pools.host.page_size, IO[pools.host.layout]
    for layer in range(pools.host.layer_num):
        pools.host.load_to_device_per_layer(None, slots(host, size), slots(device, size), layer, io)
