"""Rotary positions as models have them: by how much each pair of a key turns from one token to the next.

The scalings are those that Hugging Face configurations name, and their formulas those of the papers: linear
interpolation, Llama 3 (its reference implementation, `apply_scaling`), YaRN (Peng et al., arXiv 2309.00071).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

_DEFAULT = ("default", None)


class UnknownRopeError(ValueError):
    """A scaling that keys cannot be turned by here."""


@dataclass(frozen=True, slots=True)
class Rope:
    """Of one model."""

    inverse_frequencies: torch.Tensor
    """float64 ``[pairs]``: radians a token."""
    magnitude: float = 1.0
    """What queries and keys are multiplied by after they are turned (YaRN)."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Rope:
        """Of a model's config.json. Raises UnknownRopeError."""
        told = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
        base = float(told.get("rope_theta") or config.get("rope_theta") or 10_000.0)
        heads, hidden = config["num_attention_heads"], config["hidden_size"]
        dim = int(config.get("head_dim") or hidden // heads)
        if float(config.get("partial_rotary_factor") or told.get("partial_rotary_factor") or 1.0) != 1.0:
            raise UnknownRopeError("only part of each head is rotated")
        plain = base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        kind = told.get("rope_type") or told.get("type")
        if kind in _DEFAULT:
            return cls(plain)
        if kind == "linear":
            return cls(plain / float(told["factor"]))
        if kind == "llama3":
            return cls(_llama3(plain, told))
        if kind == "yarn":
            return _yarn(plain, told, base, dim, config)
        raise UnknownRopeError(f"rope scaling {kind!r} is not known")


def _llama3(plain: torch.Tensor, told: Mapping[str, Any]) -> torch.Tensor:
    """Long waves are stretched by `factor`, short ones are not, and those between by something between."""
    factor, trained = float(told["factor"]), float(told["original_max_position_embeddings"])
    low, high = float(told["low_freq_factor"]), float(told["high_freq_factor"])
    turns = trained * plain / (2 * math.pi)
    blend = ((turns - low) / (high - low)).clamp(0, 1)
    return plain / factor * (1 - blend) + plain * blend


def _yarn(
    plain: torch.Tensor, told: Mapping[str, Any], base: float, dim: int, config: Mapping[str, Any]
) -> Rope:
    factor = float(told["factor"])
    trained = float(told.get("original_max_position_embeddings") or config["max_position_embeddings"])

    def pair_of(turns: float) -> float:
        """The pair that turns so often over the trained length."""
        return dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = pair_of(float(told.get("beta_fast") or 32)), pair_of(float(told.get("beta_slow") or 1))
    if told.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    if first == last:
        last += 0.001  # as the reference implementation has it
    kept = 1 - ((torch.arange(dim // 2, dtype=torch.float64) - first) / (last - first)).clamp(0, 1)
    magnitude = told.get("attention_factor")
    if magnitude is None:
        magnitude = _yarn_magnitude(factor, told.get("mscale"), told.get("mscale_all_dim"))
    return Rope(plain / factor * (1 - kept) + plain * kept, float(magnitude))


def _yarn_magnitude(factor: float, scale: float | None, all_dims: float | None) -> float:
    def magnitude(times: float) -> float:
        return 0.1 * times * math.log(factor) + 1.0 if factor > 1 else 1.0

    if scale and all_dims:
        return magnitude(scale) / magnitude(all_dims)
    return magnitude(1.0)
