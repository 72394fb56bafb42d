"""Which model an engine serves, and the names of what is stored of it: one rule for every engine.

An engine's own module says what its configuration objects mean (`sgkv.sglang.naming`,
`sgkv.vllm.naming`); what follows from that is here, so that two engines cannot come to name the same
KV apart, or other KV alike.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from sgkv.identity import Namespace
from sgkv.weights import architecture, changed_since, fingerprint

if TYPE_CHECKING:
    from sgkv.config import Config

logger = logging.getLogger("sgkv")

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What an engine says of the model it serves: all outside its pools that decides its KV."""

    model: Path | None
    """Local folder or file of the weights; None where there is none to read."""
    drafts: Sequence[Path | None] = ()
    adapters: Sequence[Path | None] = ()
    """Those that requests can name, whatever lies there."""
    loading: str
    """What is made of the files while they are loaded; empty where nothing is."""
    doubt: str
    """Why the files may not be all that KV is computed with; empty where they are."""
    overrides: str
    """Of the model's configuration."""
    kv_scales: Path | None = None
    producer: str
    """``engine/<version>``"""
    numerics: str
    """Kernels, compute dtype and device kind: what makes KV bit-stable."""
    started: float
    """Unix seconds: when this process began, and so before it loaded any weights."""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The part of a namespace that all pools and ranks of an engine share."""

    weights: str
    architecture: str
    numerics: str
    producer: str


def identify(
    config: Config, facts: ModelFacts | None, private: str, unknown: str, producer: str = ""
) -> ModelIdentity:
    """Fingerprint the weights (blocking I/O). What cannot be known is private to this launch.

    `private` names the launch. Without `facts`, `unknown` says why there are none and `producer` who stores.
    """
    weights, reason = _weights(config.model.weights, facts, private, unknown)
    if reason:
        logger.warning(
            "sgkv: what this engine stores is used by this launch only: %s. Set model.weights to a revision "
            "string, which stands for all that KV is computed with, to keep it.",
            reason,
        )
    if facts is None:
        return ModelIdentity(weights, _UNKNOWN, _numerics(config, _UNKNOWN), producer)
    return ModelIdentity(weights, _shape(facts), _numerics(config, facts.numerics), facts.producer)


def namespace(
    config: Config, model: ModelIdentity, epoch: str, *, kv_dtype: str, page_tokens: int, pool: str,
    cell: str, geometry: str,
) -> Namespace:  # fmt: skip
    """The namespace of one part of the model in one pool."""
    return Namespace(
        tenant=config.tenant,
        weights=model.weights,
        epoch=epoch,
        architecture=model.architecture,
        numerics=model.numerics,
        kv_dtype=kv_dtype,
        page_tokens=page_tokens,
        chunk_tokens=config.chunk_tokens,
        pool=pool,
        cell=cell,
        geometry=geometry,
    )


def _weights(setting: str, facts: ModelFacts | None, private: str, unknown: str) -> tuple[str, str]:
    """(what names the weights, why that is private; empty where it is not).

    An operator's revision stands for what cannot be known, not for adapters and drafts that can.
    """
    revised = setting not in ("auto", "full")
    if facts is None:
        return (f"revision {setting} ", "") if revised else (private, unknown)
    if facts.doubt and not revised:
        return private, facts.doubt
    found = [] if revised else [("model", _known(facts.model, facts.started, read_all=setting == "full"))]
    found += [("draft", _known(draft, facts.started)) for draft in facts.drafts]
    found += [("adapter", _known(adapter, facts.started)) for adapter in facts.adapters]
    if not revised and not all(digest for _, digest in found):
        return private, "files of the model, its draft or its adapters cannot be read, or were not loaded so"
    named = sorted(f"{name} {digest}" for name, digest in found)
    return " ".join([f"revision {setting}" if revised else "files", *named, facts.loading]), ""


def _known(model: Path | None, started: float, *, read_all: bool = False) -> str | None:
    """The fingerprint of files that this process, too, must have loaded."""
    try:
        if model is None or changed_since(model, started):
            return None
        return fingerprint(model, read_all=read_all)
    except OSError:
        return None


def _shape(facts: ModelFacts) -> str:
    model = architecture(facts.model) if facts.model else _UNKNOWN
    scales = fingerprint(facts.kv_scales) if facts.kv_scales else None
    return sha256(f"{model} {facts.overrides} {scales}".encode()).hexdigest()


def _numerics(config: Config, exact: str) -> str:
    compatible = config.model.numerics == "compatible"
    named = f"compatible {config.model.numerics_class}" if compatible else f"exact {exact}"
    return " ".join([named, *config.losses])
