"""The one flag: what ``--hicache-storage-backend sgkv`` becomes, and what it leaves alone.

SGLang parses and resolves the arguments itself, in one process for all cases, with the plugin found
through its entry point.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
from sglang.srt.mem_cache.storage import StorageBackendFactory

from sgkv.sglang.cpu import cpu_environment
from sgkv.sglang.hicache import SgkvHiCache
from sgkv.sglang.launch import LAUNCH_ID
from sgkv.testing.models import write_model
from tests.sglang import pools as make
from tests.sglang.conftest import rank

REPOSITORY = Path(__file__).parents[2]
FLAG = ["--hicache-storage-backend", "sgkv"]
EXTRA = "--hicache-storage-backend-extra-config"
TIERS = [{"type": "cpu", "capacity": "64MiB"}]
FILES = {
    "json": '{"tenant": "from a file", "tiers": [{"type": "cpu", "capacity": "64MiB"}]}',
    "toml": 'tenant = "from a file"\n[[tiers]]\ntype = "cpu"\ncapacity = "64MiB"\n',
    "yaml": "tenant: from a file\ntiers:\n  - {type: cpu, capacity: 64MiB}\n",
}
BAD = {
    "a bad value": ({"tiers": [{"type": "cpu", "capacity": "much"}]}, "tiers.0.capacity"),
    "an unknown key": ({"tenent": "x"}, 'did you mean "tenant"'),
    "a bad path": ({"tiers": [{"type": "disk", "path": "relative"}]}, "tiers.0.path"),
    "more than there is": ({"tiers": [{"type": "cpu", "capacity": "900TiB"}]}, "tiers.0.capacity"),
}


def cases(folder: Path) -> dict[str, Any]:
    model = str(write_model(folder / "model", "llama", layers=1))
    base = [
        "--model-path",
        model,
        "--device",
        "cpu",
        "--attention-backend",
        "torch_native",
        "--random-seed",
        "1",
    ]
    for suffix, text in FILES.items():
        (folder / f"store.{suffix}").write_text(text)
    flag = {
        "alone": FLAG,
        "page size 1": [*FLAG, "--page-size", "1"],
        "page size 16": [*FLAG, "--page-size", "16"],
        "page size 256": [*FLAG, "--page-size", "256"],
        "inline": [*FLAG, EXTRA, json.dumps({"tenant": "inline", "tiers": TIERS, "prefetch_threshold": 64})],
        "other class": [*FLAG, EXTRA, json.dumps({"module_path": "other", "class_name": "Other"})],
        "switched off": [
            *FLAG,
            EXTRA,
            json.dumps({"interface_v1": 0, "hicache_storage_pass_prefix_keys": False}),
        ],
        "decode": [
            *FLAG,
            "--disaggregation-mode",
            "decode",
            "--disaggregation-decode-enable-offload-kvcache",
        ],
        "no file": [*FLAG, EXTRA, f"@{folder}/nowhere.json"],
        "no json": [*FLAG, EXTRA, "{tenant"],
        "a list": [*FLAG, EXTRA, "[1]"],
        **{suffix: [*FLAG, EXTRA, f"@{folder}/store.{suffix}"] for suffix in FILES},
        **{name: [*FLAG, EXTRA, json.dumps(options)] for name, (options, _) in BAD.items()},
    }
    others = {
        "no storage": [],
        "sglang's own": ["--enable-hierarchical-cache", "--hicache-storage-backend", "file"],
        "explicit": ["--hicache-storage-backend", "dynamic", EXTRA, json.dumps({"backend_name": "x"})],
    }
    keywords = {"model_path": model, "device": "cpu", "attention_backend": "torch_native"}
    return {
        "flag": {
            **{name: [*base, *more] for name, more in flag.items()},
            "keywords of Engine": {**keywords, "hicache_storage_backend": "sgkv"},
        },
        "others": {name: [*base, *more] for name, more in others.items()},
    }


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("flag")
    ours = {"HOME": str(folder), "SGLANG_PLUGINS": "sgkv", LAUNCH_ID: "inherited"}
    environment = {**os.environ, **cpu_environment(), **ours}
    run = subprocess.run(
        [sys.executable, "-m", "tests.sglang.arguments"],
        input=json.dumps(cases(folder)), env=environment, cwd=REPOSITORY,
        text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def resolved(outcomes: dict[str, Any], name: str) -> dict[str, Any]:
    return outcomes["flag"][name]["resolved"]


def extra(outcomes: dict[str, Any], name: str) -> dict[str, Any]:
    return json.loads(resolved(outcomes, name)["hicache_storage_backend_extra_config"])


@pytest.mark.parametrize("name", ["alone", "keywords of Engine"])
def test_the_flag_is_enough(outcomes: dict[str, Any], name: str) -> None:
    became = resolved(outcomes, name)
    assert became["hicache_storage_backend"] == "dynamic"
    assert became["enable_hierarchical_cache"] is True
    assert became["page_size"] == 64
    assert extra(outcomes, name) == {
        "backend_name": "sgkv", "module_path": "sgkv.sglang.hicache", "class_name": "SgkvHiCache",
        "interface_v1": 1, "hicache_storage_pass_prefix_keys": True,
    }  # fmt: skip


def test_a_decode_server_that_stores_gets_no_host_cache(outcomes: dict[str, Any]) -> None:
    """SGLang refuses to start with one."""
    became = resolved(outcomes, "decode")
    assert became["hicache_storage_backend"] == "dynamic"
    assert became["enable_hierarchical_cache"] is False


def test_one_line_says_what_it_set(outcomes: dict[str, Any]) -> None:
    (line,) = outcomes["flag"]["alone"]["said"]
    for word in ("sgkv.sglang.hicache.SgkvHiCache", "zero-copy", "prefix keys", "page size 64"):
        assert word in line
    (line,) = outcomes["flag"]["page size 16"]["said"]
    assert "page size" not in line


@pytest.mark.parametrize(
    ("name", "size"), [("page size 1", 64), ("page size 16", 16), ("page size 256", 256)]
)
def test_a_page_of_one_token_is_mended_and_another_size_kept(
    outcomes: dict[str, Any], name: str, size: int
) -> None:
    assert resolved(outcomes, name)["page_size"] == size


@pytest.mark.parametrize("suffix", FILES)
def test_a_configuration_file_is_read_by_the_plugin(outcomes: dict[str, Any], suffix: str) -> None:
    """Its content goes on as JSON: decode offload parses that itself and knows no files."""
    options = extra(outcomes, suffix)
    assert (options["tenant"], options["tiers"]) == ("from a file", TIERS)
    assert options["class_name"] == "SgkvHiCache"


def test_settings_in_the_extra_config_stay_beside_ours(outcomes: dict[str, Any]) -> None:
    options = extra(outcomes, "inline")
    assert (options["tenant"], options["prefetch_threshold"], options["interface_v1"]) == ("inline", 64, 1)


def test_what_the_user_says_of_the_interface_counts_but_the_class_is_ours(outcomes: dict[str, Any]) -> None:
    off = extra(outcomes, "switched off")
    assert (off["interface_v1"], off["hicache_storage_pass_prefix_keys"]) == (0, False)
    other = extra(outcomes, "other class")
    assert (other["module_path"], other["class_name"]) == ("sgkv.sglang.hicache", "SgkvHiCache")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_configuration_is_refused_before_a_model_is_loaded(outcomes: dict[str, Any], name: str) -> None:
    assert BAD[name][1] in outcomes["flag"][name]["error"]


@pytest.mark.parametrize(
    ("name", "word"), [("no file", "nowhere.json"), ("no json", EXTRA), ("a list", EXTRA)]
)
def test_an_extra_config_that_cannot_be_read_is_named(outcomes: dict[str, Any], name: str, word: str) -> None:
    assert word in outcomes["flag"][name]["error"]


def test_other_launches_resolve_to_the_same_as_without_the_plugin(outcomes: dict[str, Any]) -> None:
    assert outcomes["others"].keys() == {"no storage", "sglang's own", "explicit"}
    for name, outcome in outcomes["others"].items():
        assert outcome["resolved"] == outcomes["without_plugin"][name]["resolved"]
        assert not outcome["said"]


def test_every_launch_is_another_one(outcomes: dict[str, Any]) -> None:
    """Also in one process, and with an identifier inherited from a server that started this one.

    Weights that are pushed into two servers are told apart by nothing else.
    """
    launches = [outcomes["flag"][name]["launch"] for name in ("alone", "page size 16", "keywords of Engine")]
    launches.append(outcomes["others"]["explicit"]["launch"])
    assert len({*launches, "inherited", None}) == 6


def test_sglang_builds_the_class_from_what_the_flag_became(outcomes: dict[str, Any]) -> None:
    """Its parser takes its own keys away; its factory imports and checks the class."""
    text = resolved(outcomes, "inline")["hicache_storage_backend_extra_config"]
    options, threshold, *_, prefix_keys = HybridCacheController.parse_storage_backend_extra_config(text)
    assert (threshold, prefix_keys) == (64, True)
    config = HiCacheStorageConfig(**rank(), extra_config=options)
    backend = StorageBackendFactory.create_backend("dynamic", config, make.mha().host)
    try:
        assert isinstance(backend, SgkvHiCache)
    finally:
        backend.close()
