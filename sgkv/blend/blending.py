"""Prefill over KV that was computed elsewhere: the tokens of which it is most wrong are computed anew.

Keys and values of the first layer depend on nothing but the token and its position: turned, they are right.
From the second layer on those of a reused token miss what it would have seen before it. How much is
measured there, where all tokens are computed, and only the worst go on, with those that are new and those
at which a piece begins: they are queries with a length of their own over the slots of all tokens, as in
decoding, and write their keys and values there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sgkv.blend.engine import KV, Decoder

_MEASURED = 1
"""The layer at which tokens are chosen: the first whose KV depends on other tokens."""


@dataclass(frozen=True, slots=True)
class Reused:
    """KV of a piece of a prompt, as it was computed on its own from position 0."""

    start: int
    """Where in the prompt the piece begins."""
    kv: KV

    @property
    def stop(self) -> int:
        return self.start + self.kv.tokens


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is computed anew."""

    ratio: float = 0.15
    """Of reused tokens; 0 computes none, 1 all, which is a prefill."""
    first: int = 4
    """Tokens at the start of each piece that always are: they saw nothing, and draw much attention."""
    narrowing: float = 1.0
    """What is left of `ratio` at the last layer, linearly from the second."""

    def share(self, layer: int, layers: int) -> float:
        """Of reused tokens that are computed at a layer."""
        if layer <= _MEASURED or layers <= _MEASURED + 2:
            return self.ratio
        done = (layer - _MEASURED) / (layers - 1 - _MEASURED)
        return self.ratio * (1 - done * (1 - self.narrowing))


@dataclass(slots=True)
class Blended:
    """What came of it."""

    logits: Tensor
    """Of the tokens that were not reused, ``[tokens, vocabulary]``."""
    kv: KV
    computed: list[int]
    """Tokens that each layer computed."""


def blend(model: Decoder, tokens: Tensor, pieces: Sequence[Reused], plan: Plan) -> Blended:
    """Prefill `tokens`, parts of which are `pieces`: in order, without overlap, and none has the last token.

    Raises ValueError where they do not fit.
    """
    fresh = _fresh(len(tokens), pieces)
    kv = _laid_out(model, len(tokens), pieces)
    if not plan.ratio:
        chosen, hidden = fresh.nonzero()[:, 0], model.embedded(tokens[fresh])
    else:
        chosen, hidden = torch.arange(len(tokens)), model.embedded(tokens)
    forced = fresh | _beginnings(len(tokens), pieces, plan.first)
    computed = []
    for layer in range(model.layers):
        keys, values = model.keys_and_values(hidden, layer, chosen)
        if layer >= _MEASURED and plan.ratio:
            wanted = math.ceil(plan.share(layer, model.layers) * int((~fresh).sum()))
            kept = _worst(keys, values, kv, layer, chosen, forced, wanted)
            # All are written where they were computed: what is known better is not thrown away.
            kv.keys[layer, chosen], kv.values[layer, chosen] = keys, values
            chosen, hidden = chosen[kept], hidden[kept]
        else:
            kv.keys[layer, chosen], kv.values[layer, chosen] = keys, values
        computed.append(len(chosen))
        hidden = model.step(hidden, layer, chosen, kv.keys[layer], kv.values[layer])
    return Blended(model.logits(hidden[fresh[chosen]]), kv, computed)


def _worst(
    keys: Tensor, values: Tensor, kv: KV, layer: int, chosen: Tensor, forced: Tensor, wanted: int
) -> Tensor:
    """Which of the chosen go on: those that must, and of the others the `wanted` that differ most."""
    must = forced[chosen]
    lost = _deviation(keys, kv.keys[layer, chosen]) + _deviation(values, kv.values[layer, chosen])
    lost = lost.masked_fill(must, -1.0)
    most = torch.topk(lost, min(wanted, int((~must).sum()))).indices
    kept = must.clone()
    kept[most] = True
    return kept


def _deviation(new: Tensor, old: Tensor) -> Tensor:
    """Of each token, relative to what tokens have on the whole."""
    return (new - old).square().sum((1, 2)) / new.square().sum((1, 2)).mean()


def _fresh(tokens: int, pieces: Sequence[Reused]) -> Tensor:
    """Which tokens are in no piece."""
    fresh, end = torch.ones(tokens, dtype=torch.bool), 0
    for piece in pieces:
        if not end <= piece.start < piece.stop < tokens:
            raise ValueError(
                f"a piece from {piece.start} to {piece.stop} does not fit after {end} in {tokens}"
            )
        fresh[piece.start : piece.stop] = False
        end = piece.stop
    return fresh


def _laid_out(model: Decoder, tokens: int, pieces: Sequence[Reused]) -> KV:
    """Room for the prompt, with the pieces in their places and their keys turned there."""
    kv = model.room(tokens)
    for piece in pieces:
        kv.keys[:, piece.start : piece.stop] = model.moved(piece.kv.keys, piece.start)
        kv.values[:, piece.start : piece.stop] = piece.kv.values
    return kv


def _beginnings(tokens: int, pieces: Sequence[Reused], first: int) -> Tensor:
    """Tokens at which pieces begin; a piece at the very start of the prompt is a prefix, and right."""
    begins = torch.zeros(tokens, dtype=torch.bool)
    for piece in pieces:
        if piece.start:
            begins[piece.start : min(piece.stop, piece.start + first)] = True
    return begins
