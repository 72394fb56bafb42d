"""Defaults, and settings that are refused with what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sgkv.config import Config, ConfigError, CpuTier, DiskTier, load


def refusal(**options: object) -> str:
    """All that is said against `options`."""
    with pytest.raises(ConfigError) as caught:
        load(options, environ={})
    return str(caught.value)


def test_with_nothing_configured_there_is_memory_before_disk() -> None:
    config = Config()
    cpu, disk = config.tiers
    assert isinstance(cpu, CpuTier)
    assert isinstance(disk, DiskTier)
    assert (cpu.capacity, disk.capacity, disk.path) == ("auto", "auto", "auto")
    assert (config.tenant, config.chunk_tokens, config.ttl) == ("default", 256, None)
    assert (config.engine.exists_deadline, disk.deadlines.get, disk.breaker.cooldown) == (0.25, 5.0, 1.0)


def test_what_is_printed_can_be_read_back() -> None:
    config = load(
        {
            "ttl": "7d",
            "tiers": [
                {"type": "cpu", "capacity": "10%", "simulate": {"latency": "2ms", "bandwidth": "1GB"}},
                {"type": "disk", "path": "/srv/kv", "capacity": 5000, "faults": {"error": 0.5, "seed": 3}},
            ],
        },
        environ={},
    ).config
    assert Config.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"chunk_tokens": 100}, "chunk_tokens (argument): 100 is not a power of two: write 64 or 128"),
        ({"chunk_tokens": 8}, "chunk_tokens (argument): should be greater than or equal to 16, not 8"),
        ({"ttl": 0}, "ttl (argument): should be greater than 0, not 0"),
        ({"ttl": "soon"}, "ttl (argument): 'soon' is not a duration"),
        ({"tenant": ""}, "tenant (argument): "),
        ({"tiers": []}, "tiers: there is no tier to keep anything in"),
        ({"tiers": {"type": "cpu"}}, "tiers (argument): {'type': 'cpu'} is not a list"),
        ({"tiers": ["cpu"]}, "tiers.0 (argument): 'cpu' is not a section"),
        ({"tiers": [{"capacity": 1}]}, "tiers.0.type: is missing: write one of cpu, disk, mooncake, s3"),
        (
            {"tiers": [{"type": "dsk"}]},
            "tiers.0.type (argument): 'dsk' is not a kind of tier; did you mean \"disk\"?",
        ),
        ({"tiers": [{"type": "s3"}]}, "tiers.0.bucket: is missing"),
        ({"tiers": [{"type": "mooncake"}]}, "tiers.0.master: is missing"),
        ({"tiers": [{"type": "mooncake", "master": "m:1", "capacity": "1GiB"}]}, "is as large as its nodes"),
        (
            {"tiers": [{"type": "mooncake", "master": "m:1", "standalone": "n:2", "segment": "1GiB"}]},
            "a standalone client has the segment",
        ),
        (
            {"tiers": [{"type": "mooncake", "master": "m:1", "ssd_path": "/ssd"}]},
            "ssd_path offloads this process's segment",
        ),
        ({"tiers": [{"type": "mooncake", "master": "m:1", "devices": "mlx5_0"}]}, "write protocol: rdma too"),
        (
            {"tiers": [{"type": "mooncake", "master": "m:1", "name": name} for name in "ab"]},
            "a pool is one tier",
        ),
        ({"tiers": [{"type": "s3", "bucket": "kv1", "capacity": "5%"}]}, "has no size to take a share of"),
        (
            {"tiers": [{"type": "s3", "bucket": "kv1", "access_key": "k"}]},
            "access_key and secret_key go together",
        ),
        (
            {"tiers": [{"type": "s3", "bucket": "kv1"}, {"type": "cpu"}]},
            "'cpu' (cpu) is faster than 's3' (s3)",
        ),
        ({"tiers": [{"type": "cpu", "capacity": 0}]}, "tiers.0.capacity (argument): a tier without room"),
        (
            {"tiers": [{"type": "cpu"}, {"type": "disk", "fsync": "yes"}]},
            "'yes' is not one of 'none' or 'data'",
        ),
        (
            {"tiers": [{"type": "disk", "path": "kv"}]},
            "tiers.0.path (argument): 'kv' depends on where the server is",
        ),
        (
            {"tiers": [{"type": "disk"}, {"type": "cpu"}]},
            "'cpu' (cpu) is faster than 'disk' (disk) before it",
        ),
        ({"tiers": [{"type": "cpu"}, {"type": "cpu", "name": "b"}]}, "there is more than one cpu tier"),
        ({"tiers": [{"type": "cpu", "name": "disk"}, {"type": "disk"}]}, "2 tiers have the name 'disk'"),
        ({"tiers": [{"type": "disk"}, {"type": "disk", "name": "b"}]}, "2 tiers have the path 'auto'"),
        (
            {"tiers": [{"type": "cpu", "breaker": {"cooldown": "2m"}}]},
            "max_cooldown is shorter than cooldown",
        ),
        (
            {"tiers": [{"type": "cpu", "faults": {"hang": 2}}]},
            "tiers.0.faults.hang (argument): should be less than",
        ),
        (
            {"tiers": [{"type": "disk"}], "write_behind": {"max_bytes": "5%"}},
            "a share of the cpu tier, and there is none",
        ),
        ({"model": {"numerics": "compatible"}}, "numerics: compatible and numerics_class go together"),
        ({"model": "llama"}, "model (argument): 'llama' is not a section"),
        (
            {"engine": {"get_deadline": "0s"}},
            "engine.get_deadline (argument): should be greater than 0, not '0s'",
        ),
    ],
)
def test_settings_that_cannot_be(options: Mapping[str, object], said: str) -> None:
    assert said in refusal(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ttll": 1}, 'ttll (argument): unknown key; did you mean "ttl"?'),
        ({"chunk-tokens": 64}, 'chunk-tokens (argument): unknown key; did you mean "chunk_tokens"?'),
        ({"engine": {"getdeadline": 1}}, 'unknown key; did you mean "get_deadline"?'),
        (
            {"tiers": [{"type": "disk", "capactiy": 1}]},
            'tiers.0.capactiy (argument): unknown key; did you mean "capacity"?',
        ),
        (
            {"tiers": [{"type": "cpu", "fsync": "none"}]},
            "tiers.0.fsync (argument): unknown key; known: breaker, capacity",
        ),
        (
            {"tiers": [{"type": "cpu", "faults": {"erorr": 1}}]},
            'tiers.0.faults.erorr (argument): unknown key; did you mean "error"?',
        ),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(options: Mapping[str, object], said: str) -> None:
    assert said in refusal(**options)


def test_every_problem_is_reported_at_once() -> None:
    lines = refusal(
        ttl=-1, chunk_tokens="many", tiers=[{"type": "cpu", "capacity": "8G", "nam": "x"}]
    ).splitlines()
    assert [line.split(" ")[0] for line in lines] == [
        "chunk_tokens",
        "tiers.0.capacity",
        "tiers.0.nam",
        "ttl",
    ]
