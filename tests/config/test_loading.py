"""Sources and which of them wins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgkv.config import ConfigError, load


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "ttl: 2h\ntiers:\n  - {type: cpu, capacity: 1GiB}\n"),
        ("c.yml", "ttl: 2h\ntiers: [{type: cpu, capacity: 1GiB}]\n"),
        ("c.toml", 'ttl = "2h"\n[[tiers]]\ntype = "cpu"\ncapacity = "1GiB"\n'),
        ("c.json", '{"ttl": "2h", "tiers": [{"type": "cpu", "capacity": 1073741824}]}'),
    ],
)
def test_the_same_file_in_every_format(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    loaded = load(file=path, environ={})
    assert loaded.config.ttl == 7200
    assert [tier.capacity for tier in loaded.config.tiers] == [1 << 30]
    assert loaded.origin("ttl") == loaded.origin("tiers.0.capacity") == str(path)
    assert loaded.origin("chunk_tokens") == "default"


def test_an_argument_outranks_the_environment_which_outranks_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("tenant: file\nttl: 1h\nchunk_tokens: 64\n")
    environ = {"SGKV_CONFIG": str(path), "SGKV__TENANT": "environment", "SGKV__TTL": "2h"}
    loaded = load({"tenant": "argument"}, environ=environ)
    assert (loaded.config.tenant, loaded.config.ttl, loaded.config.chunk_tokens) == ("argument", 7200, 64)
    origins = [loaded.origin(name) for name in ("tenant", "ttl", "chunk_tokens")]
    assert origins == ["argument", "SGKV__TTL", str(path)]


def test_sglangs_own_keys_are_passed_over_and_config_names_a_file(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"ttl": "1h", "prefetch_threshold": 128}))
    extra = {
        "backend_name": "sgkv",
        "module_path": "sgkv.sglang.hicache",
        "class_name": "SgkvHiCache",
        "interface_v1": 1,
        "prefetch_timeout_base": 2,
        "hicache_storage_pass_prefix_keys": True,
        "tp_lcm_size": 8,
        "config": str(path),
        "tenant": "a",
    }
    loaded = load(extra, environ={}, origin="extra config")
    assert (loaded.config.tenant, loaded.config.ttl) == ("a", 3600)
    assert loaded.origin("tenant") == "extra config"


def test_the_environment_reaches_into_the_list_of_tiers() -> None:
    environ = {
        "SGKV__TIERS__1__CAPACITY": "3GiB",
        "SGKV__TIERS__1__DEADLINES__GET": "1s",
        "SGKV__TIERS__2": '{"type": "disk", "name": "slow", "path": "/srv/slow"}',
    }
    tiers = load(environ=environ).config.tiers
    assert [tier.name for tier in tiers] == ["cpu", "disk", "slow"]
    assert (tiers[1].capacity, tiers[1].deadlines.get, tiers[1].deadlines.put) == (3 << 30, 1.0, 10.0)


def test_the_environment_can_take_a_value_away(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("ttl: 1h")
    assert load(file=path, environ={"SGKV__TTL": "null"}).config.ttl is None


def test_other_variables_are_none_of_ours() -> None:
    assert load(environ={"SGKV_LOG": "debug", "SGKVX__TTL": "x", "HOME": "/"}).origins == {
        "tiers.0.type": "default",
        "tiers.1.type": "default",
    }


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"SGKV__TENNANT": "x"}, 'tennant (SGKV__TENNANT): unknown key; did you mean "tenant"?'),
        ({"SGKV__": "x"}, "SGKV__: name a field after SGKV__, as in SGKV__TTL"),
        ({"SGKV__TIERS__0__": "x"}, "SGKV__TIERS__0__: name a field"),
        ({"SGKV__TIERS__7__NAME": "x"}, "SGKV__TIERS__7__NAME: 7 is past the end of a list of 2"),
        ({"SGKV__TIERS__CPU__NAME": "x"}, "tiers (SGKV__TIERS__CPU__NAME): "),
        ({"SGKV__TIERS": "[{"}, "SGKV__TIERS: is not valid JSON"),
        (
            {"SGKV__TIERS__1__CAPACITY": "8G"},
            "tiers.1.capacity (SGKV__TIERS__1__CAPACITY): 'G' is not a unit",
        ),
        ({"SGKV_CONFIG": "/nowhere/c.yaml"}, "/nowhere/c.yaml: cannot be read: No such file"),
    ],
)
def test_a_bad_variable_is_named(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ=environ)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("c.yaml", "a: [1", "cannot be parsed"),
        ("c.yaml", "- a\n", "holds no mapping"),
        ("c.yaml", "1: a\n", "holds no mapping"),
        ("c.yaml", "tenant: \x00", "cannot be parsed"),
        ("c.json", "{", "cannot be parsed"),
        ("c.toml", "a =", "cannot be parsed"),
        ("c.ini", "a=1", ".ini tells no format: name the file .yaml, .toml or .json"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file=path, environ={})
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("# nothing yet\n")
    assert load(file=path, environ={}).config == load(environ={}).config


def test_a_file_must_be_named_by_a_name() -> None:
    with pytest.raises(ConfigError, match="config: 3 is not the name of a file"):
        load({"config": 3}, environ={})
