"""docs/configuration.md tells the truth about the model: every field, its default, a valid example."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from pydantic import BaseModel

from sgkv.config import (
    Config,
    CpuTier,
    DiskTier,
    FaultConfig,
    MooncakeTier,
    S3Tier,
    SimulateConfig,
    ValkeyTier,
    load,
)

TEXT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
ROWS = dict(re.findall(r"^\| `([a-zN_.]+)` \| ([^|]*?) \| ", TEXT, re.MULTILINE))
OWN_WORDS = {"tiers", "tiers.N.type", "tiers.N.name", "tiers.N.bucket", "tiers.N.master", "tiers.N.address"}
"""Fields whose default is told in words."""


def fields(model: BaseModel, path: str) -> Iterator[tuple[str, object]]:
    """Path and default of every field of `model` and of the sections in it."""
    written = model.model_dump(mode="json")
    for name in type(model).model_fields:
        value = getattr(model, name)
        here = f"{path}{name}"
        if isinstance(value, BaseModel):
            yield from fields(value, f"{here}.")
        else:
            yield here, written[name]


def every_field() -> dict[str, object]:
    found = dict(fields(Config(), ""))
    pool, bucket = MooncakeTier(type="mooncake", master="any:1"), S3Tier(type="s3", bucket="any")
    keyed = ValkeyTier(type="valkey", address="any:1")
    for tier in (CpuTier(type="cpu"), DiskTier(type="disk"), pool, bucket, keyed):
        found |= fields(tier, "tiers.N.")
    found |= fields(SimulateConfig(), "tiers.N.simulate.")
    found |= fields(FaultConfig(), "tiers.N.faults.")
    return found


def test_every_field_is_documented_and_nothing_else() -> None:
    assert set(ROWS) == set(every_field())


def test_every_default_is_the_one_documented() -> None:
    expected = {
        path: f"`{json.dumps(value)}`" for path, value in every_field().items() if path not in OWN_WORDS
    }
    assert {path: shown for path, shown in ROWS.items() if path not in OWN_WORDS} == expected


def test_the_example_is_valid() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    config = load(yaml.safe_load(example), environ={}).config
    assert (config.tenant, len(config.tiers)) == ("team-a", 2)
