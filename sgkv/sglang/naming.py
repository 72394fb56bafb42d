"""From SGLang's facts to a namespace."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sgkv.grid import HeldHeads, Share, held_heads
from sgkv.model import ModelIdentity, identify, namespace
from sgkv.sglang.launch import LAUNCH_ID
from sgkv.weights import fingerprint, local_path

if TYPE_CHECKING:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig

    from sgkv.chunk.layout import PageLayout
    from sgkv.config import Config
    from sgkv.identity import Namespace
    from sgkv.sglang.facts import EngineFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel(ModelIdentity):
    """A model as one server of SGLang's serves it."""

    kv_cache_dtype: str


class PlacedPool(Protocol):
    """A pool of one rank, as far as it decides where its pages belong."""

    @property
    def name(self) -> str: ...

    @property
    def page_size(self) -> int: ...

    @property
    def layout(self) -> PageLayout: ...

    @property
    def kind(self) -> str:
        """What the namespace must know beyond the layout; empty where nothing."""

    @property
    def heads_sharded(self) -> bool:
        """Whether tensor parallelism splits its heads over ranks."""

    @property
    def pool(self) -> Any:
        """SGLang's own, with ``start_layer`` and ``end_layer`` where it is part of a model."""


def launch_id() -> str:
    """Unique to this launch of the server where our plugin runs, else to this process."""
    return os.environ.setdefault(LAUNCH_ID, uuid.uuid4().hex)


def model_identity(config: Config, facts: EngineFacts | None) -> ServedModel:
    """Fingerprint the weights (blocking I/O). What cannot be read is private to this launch."""
    private = f"private {launch_id()}"
    model = identify(config, facts, private, "SGLang does not say which model it is")
    kv_cache_dtype = facts.kv_cache_dtype if facts else private
    return ServedModel(
        model.weights, model.architecture, model.numerics, model.producer, kv_cache_dtype=kv_cache_dtype
    )


def pool_namespace(
    config: Config, model: ModelIdentity, rank: HiCacheStorageConfig, pool: PlacedPool, epoch: str
) -> Namespace:
    """The namespace of one pool on one rank."""
    return namespace(
        config, model, epoch,
        kv_dtype=pool.layout.dtype,
        page_tokens=pool.page_size,
        pool=pool.name,
        cell=cell(rank, pool),
        geometry=f"{pool.layout.geometry} {pool.kind}".strip(),
    )  # fmt: skip


def share(rank: HiCacheStorageConfig, pool: PlacedPool, kv_heads: Callable[[], int | None]) -> Share:
    """Which layers and kv heads of the model this rank's pages hold; not for opaque pages.

    `kv_heads` tells how many the model has.
    """
    first, last = getattr(pool.pool, "start_layer", 0), getattr(pool.pool, "end_layer", 0)
    neighbours = last - first == pool.layout.layers  # not in a pool of some layers of a hybrid model
    held = _heads(rank, pool, kv_heads)
    return Share(
        layers=range(first, last) if neighbours else None,
        layers_name=_stage(rank, pool),
        heads=held.heads,
        heads_name=_shard(rank, pool),
        doubt=held.doubt,
        last_stage=rank.pp_rank == rank.pp_size - 1,
        writes=rank.tp_rank % held.replicas == 0,
        slice=_slice(rank),
    )


def _heads(rank: HiCacheStorageConfig, pool: PlacedPool, kv_heads: Callable[[], int | None]) -> HeldHeads:
    if replicated(rank, pool):
        return HeldHeads(None)
    if not pool.heads_sharded or rank.dcp_size > 1:
        return HeldHeads(None, doubt="where ranks share out tokens it is not known which kv heads are whose")
    return held_heads(pool.layout.heads, rank.tp_rank, rank.tp_size, kv_heads)


def cell(rank: HiCacheStorageConfig, pool: PlacedPool) -> str:
    """Which part of the model this rank's pages hold.

    A pool without a head axis in a rank-replicated model (MLA) is the same on every rank. Recurrent
    state is sharded even there, and so is every pool with heads.
    """
    return " ".join(filter(None, (_stage(rank, pool), _shard(rank, pool), _slice(rank))))


def _stage(rank: HiCacheStorageConfig, pool: PlacedPool) -> str:
    first, last = getattr(pool.pool, "start_layer", 0), getattr(pool.pool, "end_layer", 0)
    return f"layers {first}-{last} pp {rank.pp_rank}/{rank.pp_size}"


def _shard(rank: HiCacheStorageConfig, pool: PlacedPool) -> str:
    return "replicated" if replicated(rank, pool) else f"tp {rank.tp_rank}/{rank.tp_size}"


def _slice(rank: HiCacheStorageConfig) -> str:
    context = [f"cp {rank.attn_cp_rank}/{rank.attn_cp_size}"] if rank.attn_cp_size > 1 else []
    decode = [f"dcp {rank.dcp_rank}/{rank.dcp_size}"] if rank.dcp_size > 1 else []
    return " ".join([*context, *decode])


def replicated(rank: HiCacheStorageConfig, pool: PlacedPool) -> bool:
    """Whether every tensor-parallel rank holds the same pages of this pool."""
    return rank.is_mla_model and not pool.heads_sharded and pool.name != "mamba"


def updated_epoch(model_path: str | None, weight_version: str | None, sequence: int) -> str:
    """The epoch after the weights of a running server changed.

    Weights that came from disk are known by their files, so every server with them agrees. Weights
    pushed into the process are known to nobody else: their epoch is private to this launch, and
    equal on its ranks, which all count the same updates.
    """
    digest = _fingerprint_now(model_path) if model_path else None
    if digest:
        return f"disk {digest} version {weight_version}"
    return f"pushed {launch_id()} {sequence} version {weight_version}"


def _fingerprint_now(model_path: str) -> str | None:
    try:
        path = local_path(model_path, None)
        return fingerprint(path) if path else None
    except OSError:
        return None
