"""From vLLM's facts to a namespace."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from sgkv.identity import Namespace
from sgkv.vllm.rows import RowShape
from sgkv.weights import architecture, changed_since, fingerprint

if TYPE_CHECKING:
    from sgkv.config import Config
    from sgkv.vllm.facts import EngineFacts

logger = logging.getLogger("sgkv")

_LAUNCH = uuid.uuid4().hex
"""Of this process: the one that runs vLLM's scheduler."""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The part of a namespace that all groups of an engine share."""

    weights: str
    architecture: str
    numerics: str
    producer: str


def model_identity(config: Config, facts: EngineFacts | None) -> ModelIdentity:
    """Fingerprint the weights (blocking I/O). What cannot be known is private to this launch."""
    weights, reason = _weights(config, facts)
    if reason:
        logger.warning(
            "sgkv: what this engine stores is used by this launch only: %s. Set model.weights to a revision "
            "string, which stands for all that KV is computed with, to keep it.",
            reason,
        )
    if facts is None:
        return ModelIdentity(weights, "unknown", _numerics(config, "unknown"), "vllm")
    model = architecture(facts.model) if facts.model else "unknown"
    shape = sha256(f"{model} {facts.overrides} None".encode()).hexdigest()
    return ModelIdentity(weights, shape, _numerics(config, facts.numerics), facts.producer)


def private_epoch(resets: int) -> str:
    """The epoch after vLLM's caches were reset for the `resets`-th time; empty before the first."""
    return f"reset {_LAUNCH} {resets}" if resets else ""


def shared_namespace(
    config: Config, model: ModelIdentity, rows: RowShape, page_tokens: int, epoch: str
) -> Namespace:
    """Of canonical pages that SGLang names alike (`sgkv.sglang.naming`) where its one rank holds all."""
    layout = rows.layout(page_tokens)
    return Namespace(
        tenant=config.tenant,
        weights=model.weights,
        epoch=epoch,
        architecture=model.architecture,
        numerics=model.numerics,
        kv_dtype=layout.dtype,
        page_tokens=page_tokens,
        chunk_tokens=config.chunk_tokens,
        pool="kv",
        cell=f"layers 0-{rows.layers} pp 0/1 tp 0/1",
        geometry=layout.geometry,
    )


def row_namespace(
    config: Config, model: ModelIdentity, offloading: Any, group: int, row_bytes: int, epoch: str
) -> Namespace:
    """Of whole rows, as they are, of one KV cache group; `offloading` is vLLM's `OffloadingConfig`."""
    parallel, cache = offloading.parallel, offloading.cache
    names = " ".join(name for each in offloading.groups for name in (*each.layer_names, "|"))
    tokens = {each.group_id: each.tokens_per_block for each in offloading.groups}[group]
    layers = sha256(names.encode()).hexdigest()
    return Namespace(
        tenant=config.tenant,
        weights=model.weights,
        epoch=epoch,
        architecture=model.architecture,
        numerics=model.numerics,
        kv_dtype=str(offloading.model.dtype),
        page_tokens=tokens * cache.blocks_per_chunk,
        chunk_tokens=config.chunk_tokens,
        pool=f"vllm group {group}",
        cell=(
            f"all of tp {parallel.tp_size} pp {parallel.pp_size} pcp {parallel.pcp_size} "
            f"dcp {parallel.dcp_size} replicated {offloading.replicated_layout}"
        ),
        geometry=(
            f"row {row_bytes} blocks {cache.blocks_per_chunk}x{tokens} layers {layers} "
            f"layout {offloading.kv_cache_layout} canonical {offloading.canonical_layout}"
        ),
    )


def _weights(config: Config, facts: EngineFacts | None) -> tuple[str, str]:
    """(what names the weights, why that is private; empty where it is not)."""
    private, setting = f"private {_LAUNCH}", config.model.weights
    loading = facts.loading if facts else ""
    if setting not in ("auto", "full"):
        return " ".join(["revision " + setting, loading]), ""
    if facts is None:
        return private, "vLLM does not tell a tier which model it serves; SgkvOffloadingConnector does"
    if facts.doubt:
        return private, facts.doubt
    try:
        unknown = facts.model is None or changed_since(facts.model, facts.started)
        digest = (
            None if unknown or facts.model is None else fingerprint(facts.model, read_all=setting == "full")
        )
    except OSError:
        digest = None
    if digest is None:
        return private, "the model's files cannot be read, or are not what was loaded"
    return " ".join(["files", f"model {digest}", loading]), ""


def _numerics(config: Config, exact: str) -> str:
    if config.model.numerics == "compatible":
        return f"compatible {config.model.numerics_class}"
    return f"exact {exact}"
