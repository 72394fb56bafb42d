"""A real SGLang server over the tiers cpu and mooncake: what one run stored another reads from the pool."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.testing.models import write_model
from sgkv.testing.server import SglangServer
from sgkv.testing.waiting import wait_until
from tests.e2e.rig import OUTPUT_TOKENS, PATIENT, assert_same, full_tokens, prompt
from tests.mooncake.pool import Pool

pytestmark = [pytest.mark.server, pytest.mark.slow]

IDS = prompt(1)
TOKEN_BYTES = 2048
"""KV of one token in fp32: two KV heads of 32, four layers, K and V."""


@pytest.fixture
def server(pool: Pool, tmp_path: Path) -> Iterator[SglangServer]:
    """Not started yet."""
    mooncake = {"type": "mooncake", "master": pool.master.address, "admin": pool.master.admin.url}
    config = {
        "tiers": [{"type": "cpu", "capacity": "64MiB"}, {**mooncake, "deadlines": PATIENT}],
        "write_behind": {"tail_delay": 0.05},
        "engine": {"exists_deadline": 20, "get_deadline": 30, "set_deadline": 30},
    }
    server = SglangServer(
        write_model(tmp_path / "model", "llama"),
        log_path=tmp_path / "log",
        storage="sgkv",
        storage_config=config,
        metrics=True,
        extra_args=["--sleep-on-idle"],
    )
    yield server
    server.kill()


def hits(server: SglangServer) -> dict[str, float]:
    """Pages read, by tier."""
    samples = (sample for sample in server.metrics() if sample.name == "sgkv_hit_pages_total")
    return {sample.labels["tier"]: sample.value for sample in samples if sample.value}


def stored_bytes(pool: Pool) -> int:
    return sum(blob.size for blob in pool.master.admin.blobs(""))


def test_a_killed_server_finds_its_prompt_in_the_pool(server: SglangServer, pool: Pool):
    server.start()
    cold = server.generate(IDS, OUTPUT_TOKENS)
    assert cold.cached_tokens == 0
    wanted = full_tokens(IDS, 64) * TOKEN_BYTES
    wait_until(lambda: stored_bytes(pool) >= wanted, "the prompt to be in the pool")
    server.kill()
    server.start()
    again = server.generate(IDS, OUTPUT_TOKENS)
    assert again.cached_tokens == again.cached_by_tier.get("storage", 0) == full_tokens(IDS, 64)
    assert_same(again, cold)
    assert hits(server) == {"mooncake": full_tokens(IDS, 64) // 64}
    pool.master.kill()
    server.flush()
    other = server.generate(prompt(2), OUTPUT_TOKENS)  # without the pool it serves all the same
    assert len(other.output_ids) == OUTPUT_TOKENS
