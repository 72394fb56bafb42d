"""Engines over stores, and prompts to ask them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgkv.testing.models import write_model
from sgkv.testing.vllm import Answer, VllmEngine, VllmHost
from sgkv.vllm.launch import connector_config, transfer_config

CHUNK = 64
PROMPT_TOKENS, FULL_TOKENS = 530, 512
LOGPROB_TOLERANCE = 5e-5
"""In float32: a cached prefix is summed in another order than one that is computed."""
HOST_BYTES = 64 << 20
PATIENT = {"contains": 20, "get": 30, "put": 30}
DEADLINES = {"exists_deadline": 20, "get_deadline": 30, "set_deadline": 30}


def prompt(seed: int, tokens: int = PROMPT_TOKENS) -> list[int]:
    """Token ids that no other seed shares a chunk with."""
    source = random.Random(seed)
    return [source.randrange(2, 258) for _ in range(tokens)]


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    """A patient store over one disk tier."""
    tier = {"type": "disk", "path": str(folder), "capacity": "1GiB", "deadlines": PATIENT}
    return {"tiers": [tier], "engine": DEADLINES, **more}


def same(answer: Answer, reference: Answer) -> bool:
    """Equal tokens, and log-probabilities within the tolerance."""
    pairs = zip(answer.logprobs, reference.logprobs, strict=True)
    close = all(abs(one - other) <= LOGPROB_TOLERANCE for one, other in pairs)
    return answer.output_ids == reference.output_ids and close


def blobs(folder: Path) -> list[Path]:
    """What a disk tier in `folder` holds."""
    return sorted(path for path in (folder / "blobs").rglob("*") if path.is_file())


@dataclass(slots=True)
class Rig:
    """Starts engines on tiny models."""

    host: VllmHost
    root: Path

    def model(self, kind: str = "llama", seed: int = 1) -> Path:
        path = self.root / f"{kind}-{seed}"
        return path if path.exists() else write_model(path, kind, seed=seed)

    def engine(
        self,
        folder: Path | None,
        kind: str = "llama",
        seed: int = 1,
        *,
        host_bytes: int = HOST_BYTES,
        connector: dict[str, Any] | None = None,
        store: dict[str, Any] | None = None,
        **llm: Any,
    ) -> VllmEngine:
        """An engine with a store in `folder`, or without one; `connector` overrides the transfer config."""
        transfer = None
        if folder is not None:
            tier = settings(folder, **(store or {}))
            transfer = transfer_config(tier, host_bytes, chunk_tokens=CHUNK, cpu_engine=True) | (
                connector or {}
            )
        return self.host.start(self.model(kind, seed), transfer, **llm)

    def connected(
        self,
        folder: Path,
        kind: str = "llama",
        seed: int = 1,
        *,
        role: str = "kv_both",
        store: dict[str, Any] | None = None,
        **llm: Any,
    ) -> VllmEngine:
        """An engine whose connector moves KV between blocks and a store in `folder`."""
        transfer = connector_config(settings(folder, **(store or {})), role=role)
        return self.host.start(self.model(kind, seed), transfer, **llm)


def damage(folder: Path) -> None:
    """Flip a bit in the last page of every blob."""
    for path in blobs(folder):
        with path.open("r+b") as blob:
            blob.seek(-1, 2)
            last = blob.read(1)
            blob.seek(-1, 2)
            blob.write(bytes([last[0] ^ 1]))
