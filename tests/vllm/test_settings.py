"""What a tier's entry in vLLM's `secondary_tiers` means."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgkv.config import ConfigError, load
from sgkv.vllm.settings import settings


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGKV_CONFIG", raising=False)


def kinds(**options: object) -> list[str]:
    return [tier.type for tier in settings(load, options).config.tiers]


def test_vllms_host_memory_stands_for_the_cpu_tier() -> None:
    assert kinds() == ["disk"]
    assert kinds(tenant="a", locality="LOCAL", backpressure={}) == ["disk"]


def test_tiers_that_are_named_are_taken(tmp_path: Path) -> None:
    assert kinds(tiers=[{"type": "cpu"}, {"type": "disk"}]) == ["cpu", "disk"]
    file = tmp_path / "sgkv.yaml"
    file.write_text("tiers:\n  - {type: cpu}\n  - {type: disk}\n")
    assert kinds(config=str(file)) == ["cpu", "disk"]


def test_what_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="capasity"):
        settings(load, {"capasity": 1})
