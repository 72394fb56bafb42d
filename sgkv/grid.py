"""The grid of cells that a fleet cuts a model's KV into: ranges of layers, groups of kv heads.

`model.head_group` and `model.layer_group` set it. A cell is named by its place in the model, not by the
rank that holds it, so ranks of servers of any tensor- or pipeline-parallel size share the cells that
each of them holds. Without either setting a rank's pages are named by its place among the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

from sgkv.chunk.cut import Cut
from sgkv.config import ConfigError, Problem
from sgkv.model import ModelIdentity, namespace
from sgkv.store.cells import Cell

if TYPE_CHECKING:
    from sgkv.chunk.layout import PageLayout
    from sgkv.config import Config, ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What the pages of one rank hold of a model."""

    layers: range | None
    """Of the model; None where they are not neighbours in it."""
    layers_name: str
    """Names them then: no grid cuts them."""
    heads: range | None
    """Of the model's kv heads; None where there is no such axis, or the engine does not say which."""
    heads_name: str
    doubt: str = ""
    """Why it is not known which heads they are."""
    last_stage: bool = True
    """Whether the model ends with these layers."""
    writes: bool = True
    """False on all but one of the ranks that hold the same heads."""
    slice: str = ""
    """Which of the tokens, where ranks share those out."""


class HeldHeads(NamedTuple):
    """Which of a model's kv heads one tensor-parallel rank holds."""

    heads: range | None
    replicas: int = 1
    """Ranks that hold the same ones: neighbours, of which the first writes."""
    doubt: str = ""
    """Why it is not known which."""


def held_heads(own: int, rank: int, ranks: int, in_model: Callable[[], int | None]) -> HeldHeads:
    """Of a rank that holds `own` heads; `in_model` tells how many the model has, where that is in question.

    Both engines divide them alike, and where there are more ranks than heads give neighbours the same one
    (`QKVParallelLinear` of SGLang 0.5.23 and vLLM 0.32).
    """
    total = own * ranks if own > 1 or ranks == 1 else in_model()
    if not total or max(1, total // ranks) != own or (total % ranks and ranks % total):
        doubt = f"the engine does not say which of the model's kv heads the {own} of this rank are"
        return HeldHeads(None, doubt=doubt)
    replicas = max(1, ranks // total)
    first = rank // replicas * own
    return HeldHeads(range(first, first + own), replicas)


def gridded(config: Config) -> bool:
    """Whether the fleet has a grid."""
    return config.model.head_group is not None or config.model.layer_group is not None


def cells(
    config: Config, model: ModelIdentity, epoch: str, *, pool: str, layout: PageLayout, share: Share
) -> list[Cell]:
    """The cells of one rank's pages, which are laid out as `layout`.

    Raises ConfigError where the grid does not fit what the rank holds.
    """
    layers = _layers(config.model, layout, share)
    heads = _heads(config.model, layout, share)
    return [
        Cell(
            namespace(
                config, model, epoch,
                kv_dtype=layout.dtype,
                page_tokens=layout.tokens,
                pool=pool,
                cell=" ".join(filter(None, (layers_name, heads_name, share.slice))),
                geometry=cut.layout.geometry,
            ),
            cut,
            share.writes,
        )
        for (layers_name, some_layers), (heads_name, some_heads) in product(layers, heads)
        for cut in (Cut(layout, some_layers, some_heads),)
    ]  # fmt: skip


def _layers(model: ModelConfig, layout: PageLayout, share: Share) -> list[tuple[str, range]]:
    """(name, which layers of the page) of each group."""
    held, group = share.layers, model.layer_group
    if held is None:
        return [(share.layers_name, range(layout.layers))]
    if group and (held.start % group or (held.stop % group and not share.last_stage)):
        most = gcd(held.start, 0 if share.last_stage else held.stop)
        raise _misfit(
            "layer_group",
            f"cells of {group} layers do not begin and end where this stage does, which has layers "
            f"{held.start} to {held.stop - 1}: write a divisor of {most}, or divide the layers otherwise",
        )
    return _tiles("layers", held, group or len(held))


def _heads(model: ModelConfig, layout: PageLayout, share: Share) -> list[tuple[str, range]]:
    held, group = share.heads, model.head_group
    if group and share.doubt:
        raise _misfit("head_group", f"{share.doubt}: leave it out")
    if held is None:
        return [(share.heads_name, range(layout.heads))]
    if group and len(held) % group:
        raise _misfit(
            "head_group",
            f"cells of {group} kv heads do not divide the {len(held)} of this rank: write a divisor of "
            f"{len(held)}, and the same for the whole fleet",
        )
    return _tiles("heads", held, group or len(held))


def _tiles(axis: str, held: range, group: int) -> list[tuple[str, range]]:
    starts = range(held.start, held.stop, group)
    tiles = [range(start, min(start + group, held.stop)) for start in starts]
    return [
        (f"{axis} {tile.start}-{tile.stop}", range(tile.start - held.start, tile.stop - held.start))
        for tile in tiles
    ]


def _misfit(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(f"model.{field}", message)])
