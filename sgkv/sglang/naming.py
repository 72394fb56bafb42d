"""From SGLang's facts to a namespace."""

from __future__ import annotations

import logging
import os
import uuid
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sgkv.identity import Namespace
from sgkv.sglang.facts import EngineFacts
from sgkv.sglang.launch import LAUNCH_ID
from sgkv.weights import architecture, changed_since, fingerprint, local_path

if TYPE_CHECKING:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig

    from sgkv.chunk.layout import PageLayout
    from sgkv.config import Config

logger = logging.getLogger("sgkv")


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The part of a namespace that all pools and ranks of a server share."""

    weights: str
    architecture: str
    numerics: str
    producer: str
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


def model_identity(config: Config, facts: EngineFacts | None) -> ModelIdentity:
    """Fingerprint the weights (blocking I/O). What cannot be read is private to this launch."""
    private = f"private {launch_id()}"
    if facts is None:
        revision = config.model.weights
        weights = private if revision in ("auto", "full") else f"revision {revision}"
        return ModelIdentity(weights, "unknown", _numerics(config, "unknown"), "", private)
    weights = _weights(config, facts) or private
    if weights == private:
        logger.warning(
            "sgkv: the files of this model, its draft or its adapters cannot be read, or are not what this "
            "server loaded, so what it stores is used by this launch only. Set model.weights to a revision "
            "string to keep it."
        )
    model = architecture(facts.model) if facts.model else "unknown"
    scales = fingerprint(facts.kv_scales) if facts.kv_scales else None
    shape = sha256(f"{model} {facts.model_overrides} {scales}".encode()).hexdigest()
    numerics = _numerics(config, facts.numerics)
    return ModelIdentity(weights, shape, numerics, facts.producer, facts.kv_cache_dtype)


def namespace(
    config: Config, model: ModelIdentity, rank: HiCacheStorageConfig, pool: PlacedPool, epoch: str
) -> Namespace:
    """The namespace of one pool on one rank."""
    return Namespace(
        tenant=config.tenant,
        weights=model.weights,
        epoch=epoch,
        architecture=model.architecture,
        numerics=model.numerics,
        kv_dtype=pool.layout.dtype,
        page_tokens=pool.page_size,
        chunk_tokens=config.chunk_tokens,
        pool=pool.name,
        cell=cell(rank, pool),
        geometry=f"{pool.layout.geometry} {pool.kind}".strip(),
    )


def cell(rank: HiCacheStorageConfig, pool: PlacedPool) -> str:
    """Which part of the model this rank's pages hold.

    A pool without a head axis in a rank-replicated model (MLA) is the same on every rank. Recurrent
    state is sharded even there, and so is every pool with heads.
    """
    first, last = getattr(pool.pool, "start_layer", 0), getattr(pool.pool, "end_layer", 0)
    layers = f"layers {first}-{last} pp {rank.pp_rank}/{rank.pp_size}"
    context = f" cp {rank.attn_cp_rank}/{rank.attn_cp_size}" if rank.attn_cp_size > 1 else ""
    decode = f" dcp {rank.dcp_rank}/{rank.dcp_size}" if rank.dcp_size > 1 else ""
    shard = "replicated" if replicated(rank, pool) else f"tp {rank.tp_rank}/{rank.tp_size}"
    return f"{layers} {shard}{context}{decode}"


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


def _weights(config: Config, facts: EngineFacts) -> str | None:
    """All weights that KV is computed with, or None where one of them cannot be known.

    An operator's revision stands for those that cannot.
    """
    setting = config.model.weights
    revised = setting not in ("auto", "full")
    found = [] if revised else [("model", _known(facts.model, facts, read_all=setting == "full"))]
    found += [("draft", _known(facts.draft_model, facts))] if facts.has_draft else []
    found += [("adapter", _known(adapter, facts)) for adapter in facts.adapters]
    if not revised and (facts.weights_elsewhere or not all(digest for _, digest in found)):
        return None
    named = sorted(f"{name} {digest}" for name, digest in found)
    return " ".join([f"revision {setting}" if revised else "files", *named, facts.loading])


def _known(model: Path | None, facts: EngineFacts, *, read_all: bool = False) -> str | None:
    """The fingerprint of files that this process, too, must have loaded."""
    try:
        if model is None or changed_since(model, facts.started):
            return None
        return fingerprint(model, read_all=read_all)
    except OSError:
        return None


def _numerics(config: Config, exact: str) -> str:
    if config.model.numerics == "compatible":
        return f"compatible {config.model.numerics_class}"
    return f"exact {exact}"
