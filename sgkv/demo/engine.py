"""The demo's SGLang servers and what can be asked of them."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sgkv.demo.results import Traffic
from sgkv.testing.models import write_model
from sgkv.testing.server import SglangServer
from sgkv.testing.waiting import wait_until

PAGE_SIZE = 64
PROMPT_TOKENS = 2100
"""32 full pages and a rest: SGLang computes at least one token of a prompt itself."""
FULL_PAGE_TOKENS = PROMPT_TOKENS // PAGE_SIZE * PAGE_SIZE
OUTPUT_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Model:
    """The demo's model on disk."""

    path: Path
    kv_bytes_per_token: int


def prepare_model(folder: Path) -> Model:
    """Write the model below `folder` unless a complete one is there."""
    path = folder / "demo-model"
    if not path.exists():
        partial = folder / f"demo-model.{os.getpid()}.partial"
        write_model(partial, "demo")
        partial.rename(path)
    config = json.loads((path / "config.json").read_text())
    rows = 2 * config["num_hidden_layers"] * config["num_key_value_heads"]
    return Model(path, rows * config["head_dim"] * 4)


def prompt(seed: int, tokens: int = PROMPT_TOKENS) -> list[int]:
    """Token ids that share no page with those of another seed."""
    source = random.Random(seed)  # noqa: S311 - a reproducible prompt
    return [source.randrange(2, 258) for _ in range(tokens)]


def plain_server(model: Model, logs: Path) -> SglangServer:
    """SGLang with its own device cache and nothing else."""
    return SglangServer(model.path, page_size=PAGE_SIZE, metrics=True, log_path=logs / "plain.log")


def sgkv_server(model: Model, disk: Path, logs: Path, *more_tiers: Mapping[str, object]) -> SglangServer:
    """The same with sgkv's cpu tier, a disk tier in the folder `disk`, and what else there is below."""
    tiers = [
        {"type": "cpu", "capacity": "256MiB"},
        {"type": "disk", "path": str(disk), "capacity": "2GiB"},
        *more_tiers,
    ]
    return SglangServer(
        model.path,
        page_size=PAGE_SIZE,
        metrics=True,
        storage="sgkv",
        storage_config={"tiers": tiers},
        log_path=logs / "sgkv.log",
    )


def traffic(server: SglangServer) -> Traffic:
    """Bytes moved since the server started."""
    counted: Traffic = Counter()
    for sample in server.metrics():
        for verb in ("read", "written"):
            if sample.name == f"sgkv_{verb}_bytes_total":
                counted[verb, sample.labels["tier"]] += int(sample.value)
    return counted


def wait_until_on_disk(server: SglangServer, model: Model, before: Traffic) -> None:
    """Wait until as many bytes as the full pages of one prompt have been added to the disk tier."""
    expected = FULL_PAGE_TOKENS * model.kv_bytes_per_token

    def written() -> bool:
        return (traffic(server) - before)["written", "disk"] >= expected

    wait_until(written, f"{expected} bytes of KV on disk", timeout=120)


def empty_store(server: SglangServer) -> None:
    """Clear every tier of the running server, through SGLang's admin API."""
    server.admin("POST", "/hicache/storage-backend/clear")


def warm_up(server: SglangServer) -> None:
    """A first request pays for what a process does once; this one is too short for HiCache to look up."""
    server.generate(prompt(-1, 200), 4)
