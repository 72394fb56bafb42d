"""Keys turned to other positions, so that what was computed at one place in a prompt serves at another."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sgkv.triton_kernels.formats import FLOATS
from sgkv.triton_kernels.pool import PagedPool
from sgkv.triton_kernels.transfer import checked_layers, checked_slots


@dataclass(frozen=True, slots=True)
class Rotation:
    """By how much each pair of elements of a key is turned."""

    cosines: torch.Tensor
    """float32, one a pair."""
    sines: torch.Tensor
    first: int = 0
    """The first element of a head that takes part: the length of the latent, for MLA."""
    interleaved: bool = False
    """Pairs are (0, 1), (2, 3) ... as in GPT-J and DeepSeek; else (0, n), (1, n + 1) ... as in GPT-NeoX
    and Llama, with n pairs."""

    @classmethod
    def by(
        cls, offset: int, inverse_frequencies: torch.Tensor, *, first: int = 0, interleaved: bool = False
    ) -> Rotation:
        """By `offset` positions, forward or (negative) back.

        `inverse_frequencies` are the model's own, one a pair, with whatever scaling it applies to them
        (Llama 3, YaRN); the result lies on their device. A factor on the magnitude of keys stays as it is.
        """
        angles = inverse_frequencies.to(torch.float64) * offset
        return cls(angles.cos().float(), angles.sin().float(), first, interleaved)


@dataclass(frozen=True, slots=True)
class Turn:
    """Keys of a pool that are to be turned."""

    pool: PagedPool
    slots: torch.Tensor
    """int64 ``[tokens]`` on the pool's device."""
    rotation: Rotation
    layers: range


def rotate_keys(
    pool: PagedPool,
    slots: torch.Tensor,
    rotation: Rotation,
    *,
    layers: range | None = None,
    programs: int | None = None,
) -> None:
    """Turn the keys (or the latents) at `slots` in place; values stay as they are. No slot occurs twice.

    Computed in float32 and rounded to the pool's dtype once. `slots`, `layers` and `programs` as in
    `packing.pack`; like it asynchronous, and ValueError says which argument does not fit.
    """
    _check(pool, rotation)
    turn = Turn(pool, checked_slots(pool, slots), rotation, checked_layers(pool, layers))
    if pool.device.type == "cpu":
        from sgkv.triton_kernels import rotation_reference

        rotation_reference.rotate(turn)
    else:
        from sgkv.triton_kernels import rotating

        rotating.rotate(turn, programs=programs)


def _check(pool: PagedPool, rotation: Rotation) -> None:
    pairs, dim = rotation.cosines.numel(), pool.planes[0].dim
    for angles in (rotation.cosines, rotation.sines):
        if angles.dtype != torch.float32 or angles.shape != (pairs,) or not angles.is_contiguous():
            raise ValueError(
                f"cosines and sines are dense rows of float32, one a pair, not {angles.dtype} of shape "
                f"{[*angles.shape]}"
            )
        if angles.device != pool.device:
            raise ValueError(f"the rotation lies on {angles.device}, the pool on {pool.device}")
    if not pairs or rotation.first < 0 or rotation.first + 2 * pairs > dim:
        raise ValueError(f"{pairs} pairs from element {rotation.first} on are not in a head of {dim}")
    if pool.dtype not in FLOATS:
        raise ValueError(f"only keys of {', '.join(map(str, FLOATS))} can be turned, not of {pool.dtype}")
