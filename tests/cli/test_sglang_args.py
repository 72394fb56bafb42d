"""`sgkv sglang-args`: what it prints is what SGLang 0.5.23 itself parses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from sglang.srt.mem_cache.unified_cache.linker_config import UnifiedCacheLinkerConfig
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.config import load

runner = CliRunner()


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGKV_CONFIG", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "it's mine.yaml"
    path.write_text("ttl: 7d\nprefetch_threshold: 128\ntiers: [{type: cpu, capacity: 64MiB}]\n")
    return path


def arguments(*options: str) -> list[str]:
    """What a shell makes of the printed line."""
    printed = runner.invoke(app, ["sglang-args", *options])
    assert printed.exit_code == 0, printed.stderr
    return shlex.split(printed.stdout)


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1]


def test_one_flag_needs_no_file() -> None:
    assert arguments() == ["--enable-hierarchical-cache", "--hicache-storage-backend", "sgkv"]


def test_the_flag_names_the_file_by_its_full_path(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    printed = arguments("--config", file.name)
    assert option(printed, "--hicache-storage-backend") == "sgkv"
    assert option(printed, "--hicache-storage-backend-extra-config") == f"@{file}"


def test_the_linker_reads_the_file_itself(file: Path) -> None:
    printed = arguments("--config", str(file), "--linker")
    assert "--enable-unified-cache-external-linker" in printed
    assert option(printed, "--unified-cache-external-linker-backend") == "dynamic"
    named = UnifiedCacheLinkerConfig.from_dict(
        json.loads(option(printed, "--unified-cache-external-linker-config"))
    )
    assert (named.linker_module_path, named.linker) == ("sgkv.sglang.linker", "SgkvLinker")
    assert load(named.linker_extra_config, environ={}).config == load(file=file, environ={}).config


def test_the_dynamic_form_carries_everything_in_one_json(file: Path) -> None:
    printed = arguments("--config", str(file), "--mode", "dynamic")
    extra = json.loads(option(printed, "--hicache-storage-backend-extra-config"))
    assert option(printed, "--hicache-storage-backend") == "dynamic"
    assert option(printed, "--page-size") == "64"
    assert (extra["module_path"], extra["class_name"]) == ("sgkv.sglang.hicache", "SgkvHiCache")
    assert (extra["interface_v1"], extra["hicache_storage_pass_prefix_keys"]) == (1, True)
    assert extra["prefetch_threshold"] == 128
    assert load(extra, environ={}).config == load(file=file, environ={}).config


def test_the_environment_may_name_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGKV_CONFIG", str(file))
    assert option(arguments(), "--hicache-storage-backend-extra-config") == f"@{file}"


def test_a_file_that_a_server_would_refuse_prints_no_flags(file: Path) -> None:
    file.write_text("ttl: never")
    printed = runner.invoke(app, ["sglang-args", "--config", str(file)])
    assert (printed.exit_code, printed.stdout) == (2, "")
    assert "ttl" in printed.stderr


@pytest.mark.parametrize("mode", ["flag", "dynamic"])
def test_the_installed_sglang_reads_what_is_printed(file: Path, mode: str) -> None:
    from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController

    extra = option(arguments("--config", str(file), "--mode", mode), "--hicache-storage-backend-extra-config")
    ours, threshold, _, _, pass_prefix_keys = HybridCacheController.parse_storage_backend_extra_config(extra)
    assert load(ours, environ={}).config == load(file=file, environ={}).config
    assert threshold == 128
    assert pass_prefix_keys == (mode == "dynamic")
