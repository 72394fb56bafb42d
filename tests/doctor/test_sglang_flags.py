"""Misconfigurations that users of SGLang make, each planted by itself: the doctor names it, and a fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgkv.cli.app import Mode
from sgkv.cli.sglang_args import flags, linker_flags
from sgkv.doctor import Finding, Level
from sgkv.doctor.sglang_arguments import ServerError, SglangArguments
from sgkv.doctor.sglang_flags import examine
from sgkv.sglang.launch import DYNAMIC

METRICS = "--enable-metrics"
FLAG = ("--hicache-storage-backend", "sgkv", METRICS)


def dynamic(page_size: int | None = 64, **changes: object) -> list[str]:
    """The explicit form; None in `changes` leaves a key out."""
    extra = {name: value for name, value in {**DYNAMIC, **changes}.items() if value is not None}
    given = ["--enable-hierarchical-cache", "--hicache-storage-backend", "dynamic", METRICS]
    pages = [] if page_size is None else [f"--page-size={page_size}"]
    return [*given, *pages, "--hicache-storage-backend-extra-config", json.dumps(extra)]


def trouble(given: list[str] | tuple[str, ...]) -> list[Finding]:
    return [found for found in examine(SglangArguments.of_flags(given)) if found.level is not Level.OK]


PLANTED = {
    "nothing stored": ([METRICS], "not in use", "--hicache-storage-backend sgkv"),
    "another backend": (["--hicache-storage-backend", "file", METRICS], "'file'", "sgkv"),
    "another class": (dynamic(class_name="Other"), "'Other'", "SgkvHiCache"),
    "another module": (dynamic(module_path="my.store"), "'my.store'", "sgkv.sglang.hicache"),
    "no hierarchical cache": (dynamic()[1:], "stores nothing", "--enable-hierarchical-cache"),
    "a page a token": (dynamic(page_size=1), "one token", "--page-size 64"),
    "no page size": (dynamic(page_size=None), "one token", "--page-size 64"),
    "tiny pages": (dynamic(page_size=4), "many objects", "--page-size 64"),
    "odd pages": (dynamic(page_size=96), "do not divide", "64"),
    "copies": (dynamic(interface_v1=None), "copied twice", "interface_v1"),
    "no prefix keys": (dynamic(hicache_storage_pass_prefix_keys=False), "one by one", "prefix_keys"),
    "layer first": ([*FLAG, "--hicache-mem-layout", "layer_first"], "pieces", "page_first"),
    "write back": ([*FLAG, "--hicache-write-policy=write_back"], "evicts", "write_through"),
    "selective": ([*FLAG, "--hicache-write-policy", "write_through_selective"], "second use", ""),
    "best effort": ([*FLAG, "--hicache-storage-prefetch-policy", "best_effort"], "little", "timeout"),
    "a high threshold": (dynamic(prefetch_threshold=8192), "never looked up", "256"),
    "no radix cache": ([*FLAG, "--disable-radix-cache"], "all reuse", "remove"),
    "sharded pool": ([*FLAG, "--enable-kv-cache-sharding"], "no storage", "remove"),
    "made-up weights": ([*FLAG, "--load-format", "dummy"], "no other start", ""),
    "small host memory": ([*FLAG, "--hicache-ratio", "1.0"], "no larger than", "2"),
    "no metrics": (FLAG[:2], "/metrics", "--enable-metrics"),
    "not JSON": ([*FLAG, "--hicache-storage-backend-extra-config", "{tiers"], "not valid JSON", ""),
    "unknown key": (dynamic(teirs=[]), 'did you mean "tiers"', ""),
    "no cpu tier": (
        [*dynamic(tiers=[{"type": "disk"}]), "--hicache-host-memory-mode", "buffer_only"],
        "every hit comes from a slower",
        "cpu tier",
    ),
    "linker and cache": (
        ["--enable-unified-cache-external-linker", *FLAG],
        "exclude each other",
        "leave out",
    ),
    "another linker": (["--enable-unified-cache-external-linker", METRICS], "not sgkv's", "dynamic"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_named_with_its_fix(name: str) -> None:
    given, said, mended = PLANTED[name]
    found = [finding for finding in trouble(given) if said in finding.what]
    assert found, trouble(given)
    assert mended in found[0].fix


@pytest.mark.parametrize("name", sorted(set(PLANTED) - {"no page size", "another linker", "not JSON"}))
def test_a_planted_fault_is_the_only_one_named(name: str) -> None:
    assert len(trouble(PLANTED[name][0])) == 1


@pytest.mark.parametrize("mode", list(Mode))
def test_nothing_is_wrong_with_the_flags_that_we_print(mode: Mode, tmp_path: Path) -> None:
    file = tmp_path / "sgkv.yaml"
    file.write_text("tiers: [{type: cpu, capacity: 1GiB}]\n")
    assert trouble([*flags(file, mode), METRICS]) == []
    assert trouble([*linker_flags(file), METRICS]) == []


def test_what_a_server_has_resolved_is_not_taken_for_a_command_line() -> None:
    """A page of one token there is what the plugin did not mend."""
    values = {"hicache_storage_backend": "dynamic", "enable_hierarchical_cache": True, "page_size": 1}
    values |= {"hicache_storage_backend_extra_config": json.dumps(DYNAMIC), "enable_metrics": True}
    (found,) = [f for f in examine(SglangArguments(values, live=True)) if f.level is not Level.OK]
    assert "one token" in found.what


@pytest.mark.parametrize("url", ["file:///etc/passwd", "localhost:30000", "http://127.0.0.1:1", "http://"])
def test_what_is_no_server_says_so(url: str) -> None:
    with pytest.raises(ServerError, match=r"(is not the address of a server|does not answer)"):
        SglangArguments.of_server(url)
