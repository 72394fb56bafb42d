"""From vLLM's facts to a namespace."""

from __future__ import annotations

import logging
import uuid
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from sgkv.grid import Share, cells, gridded, held_heads
from sgkv.model import ModelIdentity, identify, namespace
from sgkv.store.cells import open_cells

if TYPE_CHECKING:
    from sgkv.config import Config
    from sgkv.identity import Namespace
    from sgkv.store.base import PageSession, PageStore
    from sgkv.vllm.facts import EngineFacts
    from sgkv.vllm.rows import RowShape

logger = logging.getLogger("sgkv")

_LAUNCH = uuid.uuid4().hex
"""Of this process: the one that runs vLLM's scheduler."""


def model_identity(config: Config, facts: EngineFacts | None) -> ModelIdentity:
    """Fingerprint the weights (blocking I/O). What cannot be known is private to this launch."""
    unknown = "vLLM does not tell a tier which model it serves; SgkvOffloadingConnector does"
    return identify(config, facts, f"private {_LAUNCH}", unknown, "vllm")


def private_epoch(resets: int) -> str:
    """The epoch after vLLM's caches were reset for the `resets`-th time; empty before the first."""
    return f"reset {_LAUNCH} {resets}" if resets else ""


def shared_namespace(
    config: Config, model: ModelIdentity, rows: RowShape, page_tokens: int, epoch: str
) -> Namespace:
    """Of canonical pages that SGLang names alike (`sgkv.sglang.naming`) where its one rank holds all."""
    layout = rows.layout(page_tokens)
    return namespace(
        config, model, epoch,
        kv_dtype=layout.dtype,
        page_tokens=page_tokens,
        pool="kv",
        cell=f"layers 0-{rows.layers} pp 0/1 tp 0/1",
        geometry=layout.geometry,
    )  # fmt: skip


def open_pages(
    store: PageStore,
    config: Config,
    model: ModelIdentity,
    rows: RowShape,
    page_tokens: int,
    epoch: str,
    *,
    rank: int = 0,
    ranks: int = 1,
    kv_heads: int = 0,
) -> PageSession:
    """A session for canonical pages of all layers: of one rank that holds all heads or, over a grid, of any.

    `kv_heads` are the model's, and may be unknown where a rank holds several. Raises ConfigError where the
    fleet's grid of cells does not fit the rank.
    """
    layout = rows.layout(page_tokens)
    if not gridded(config):
        assert ranks == 1, "without a grid only pages of a whole model have a name that engines share"
        name = shared_namespace(config, model, rows, page_tokens, epoch)
        logger.info("sgkv: pages are in namespace %s (%s)", name.digest, name)
        return store.open(name, layout, model.producer)
    held = held_heads(rows.heads, rank, ranks, lambda: kv_heads)
    share = Share(
        layers=range(rows.layers),
        layers_name="",
        heads=held.heads,
        heads_name=f"tp {rank}/{ranks}",
        doubt=held.doubt,
        writes=rank % held.replicas == 0,
    )
    parts = cells(config, model, epoch, pool="kv", layout=layout, share=share)
    for part in parts:
        logger.info("sgkv: pages have cell %s (%s)", part.namespace.digest, part.namespace)
    return open_cells(store, parts, layout, model.producer)


def row_namespace(
    config: Config, model: ModelIdentity, offloading: Any, group: int, row_bytes: int, epoch: str
) -> Namespace:
    """Of whole rows, as they are, of one KV cache group; `offloading` is vLLM's `OffloadingConfig`."""
    parallel, cache = offloading.parallel, offloading.cache
    names = " ".join(name for each in offloading.groups for name in (*each.layer_names, "|"))
    tokens = {each.group_id: each.tokens_per_block for each in offloading.groups}[group]
    layers = sha256(names.encode()).hexdigest()
    return namespace(
        config, model, epoch,
        kv_dtype=str(offloading.model.dtype),
        page_tokens=tokens * cache.blocks_per_chunk,
        pool=f"vllm group {group}",
        cell=(
            f"all of tp {parallel.tp_size} pp {parallel.pp_size} pcp {parallel.pcp_size} "
            f"dcp {parallel.dcp_size} replicated {offloading.replicated_layout}"
        ),
        geometry=(
            f"row {row_bytes} blocks {cache.blocks_per_chunk}x{tokens} layers {layers} "
            f"layout {offloading.kv_cache_layout} canonical {offloading.canonical_layout}"
        ),
    )  # fmt: skip
