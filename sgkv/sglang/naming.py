"""From SGLang's facts to a namespace."""

from __future__ import annotations

import logging
import os
import uuid
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from sgkv.identity import Namespace
from sgkv.sglang.facts import EngineFacts, local_path
from sgkv.sglang.launch import LAUNCH_ID
from sgkv.sglang.pool import HostPool
from sgkv.weights import architecture, fingerprint

if TYPE_CHECKING:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig

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


def launch_id() -> str:
    """Unique to this launch of the server where our plugin runs, else to this process."""
    return os.environ.setdefault(LAUNCH_ID, uuid.uuid4().hex)


def model_identity(config: Config, facts: EngineFacts | None) -> ModelIdentity:
    """Fingerprint the weights (blocking I/O). What cannot be read is private to this launch."""
    private = f"private {launch_id()}"
    if facts is None:
        revision = config.model.weights
        weights = private if revision in ("auto", "full") else f"revision {revision}"
        return ModelIdentity(weights, "unknown", _numerics(config, "unknown"), "", "auto")
    weights = _weights(config, facts) or private
    if weights == private:
        logger.warning(
            "sgkv: no weight files of this model can be read, so what it stores is used by this launch "
            "only. Set model.weights to a revision string to keep it."
        )
    model = architecture(facts.model) if facts.model else "unknown"
    scales = fingerprint(facts.kv_scales) if facts.kv_scales else None
    shape = sha256(f"{model} {facts.model_overrides} {scales}".encode()).hexdigest()
    numerics = _numerics(config, facts.numerics)
    return ModelIdentity(weights, shape, numerics, facts.producer, facts.kv_cache_dtype)


def namespace(
    config: Config, model: ModelIdentity, rank: HiCacheStorageConfig, pool: HostPool, epoch: str
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


def cell(rank: HiCacheStorageConfig, pool: HostPool) -> str:
    """Which part of the model this rank's pages hold.

    A pool without a head axis in a rank-replicated model (MLA) is the same on every rank. Recurrent
    state is sharded even there, and so is every pool with heads.
    """
    first, last = getattr(pool.pool, "start_layer", 0), getattr(pool.pool, "end_layer", 0)
    layers = f"layers {first}-{last} pp {rank.pp_rank}/{rank.pp_size}"
    context = f" cp {rank.attn_cp_rank}/{rank.attn_cp_size}" if rank.attn_cp_size > 1 else ""
    if rank.is_mla_model and not pool.heads_sharded and pool.name != "mamba":
        return f"{layers} replicated{context}"
    return f"{layers} tp {rank.tp_rank}/{rank.tp_size}{context}"


def updated_epoch(model_path: str | None, weight_version: str | None, sequence: int) -> str:
    """The epoch after the weights of a running server changed.

    Weights that came from disk are known by their files, so every server with them agrees. Weights
    pushed into the process are known to nobody else: their epoch is private to this launch, and
    equal on its ranks, which all count the same updates.
    """
    if model_path:
        path = local_path(model_path, None)
        digest = fingerprint(path) if path else None
        if digest:
            return f"disk {digest} version {weight_version}"
    return f"pushed {launch_id()} {sequence} version {weight_version}"


def _weights(config: Config, facts: EngineFacts) -> str | None:
    setting = config.model.weights
    if setting not in ("auto", "full"):
        base: str | None = f"revision {setting}"
    elif facts.random_weights or facts.model is None:
        base = None
    else:
        base = fingerprint(facts.model, read_all=setting == "full")
    if base is None:
        return None
    if facts.has_draft:
        draft = fingerprint(facts.draft_model) if facts.draft_model else None
        if draft is None:
            return None
        base = f"{base} draft {draft}"
    return f"{base} quantization {facts.quantization}"


def _numerics(config: Config, exact: str) -> str:
    if config.model.numerics == "compatible":
        return f"compatible {config.model.numerics_class}"
    return f"exact {exact}"
