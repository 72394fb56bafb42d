"""Turning keys in plain torch: what the kernel must equal bit for bit, and what runs on a CPU."""

from __future__ import annotations

import torch

from sgkv.triton_kernels.rotation import Rotation, Turn


def rotate(turn: Turn) -> None:
    """Turn the keys of every layer asked for, in place."""
    plane = turn.pool.planes[0]
    for layer in turn.layers:
        tensor = plane.tensors[layer]
        keys = tensor[turn.slots].view(-1, plane.heads, plane.dim)
        end = turn.rotation.first + 2 * turn.rotation.cosines.numel()
        part = keys[..., turn.rotation.first : end]
        part.copy_(turned(part.to(torch.float32), turn.rotation))
        tensor[turn.slots] = keys.view(len(turn.slots), *tensor.shape[1:])


def turned(numbers: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """float32 ``[..., 2 * pairs]``, turned."""
    one, other = _apart(numbers, rotation)
    result = torch.empty_like(numbers)
    first, second = _apart(result, rotation)
    first.copy_(one * rotation.cosines - other * rotation.sines)
    second.copy_(other * rotation.cosines + one * rotation.sines)
    return result


def _apart(numbers: torch.Tensor, rotation: Rotation) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of the first and of the second elements of all pairs."""
    if rotation.interleaved:
        return numbers[..., ::2], numbers[..., 1::2]
    half = numbers.shape[-1] // 2
    return numbers[..., :half], numbers[..., half:]
