"""The tier and the connector where vLLM runs as it is served: each of its parts in its own process."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgkv.testing.vllm.server import VllmServer
from sgkv.testing.waiting import wait_until
from sgkv.vllm.launch import connector_config, transfer_config
from sgkv.vllm.leftovers import orphans
from tests.vllm.rig import CHUNK, FULL_TOKENS, HOST_BYTES, Rig, blobs, prompt, settings

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_killed_server_hands_its_kv_on(rig: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    with rig.engine(folder) as engine:
        cold = engine.one(prompt(1)).output_ids
        engine.settle()
    transfer = transfer_config(settings(folder), HOST_BYTES, chunk_tokens=CHUNK, cpu_engine=True)
    stored = len(blobs(folder))
    with VllmServer(rig.model(), transfer, log=tmp_path / "log") as server:
        assert server.complete(prompt(1), 16) == (cold, FULL_TOKENS)
        assert "vllm:sgkv_hit_pages_total{" in server.metrics()
        answer, cached = server.complete(prompt(2), 16)
        assert cached == 0
        wait_until(lambda: len(blobs(folder)) >= stored + FULL_TOKENS // CHUNK, "KV on disk", timeout=60)
        left = server.kill()
        assert set(left) <= set(orphans(settled=0.0))  # what vLLM leaves is named
        for path in left:
            path.unlink()
    with rig.engine(folder) as engine:
        again = engine.one(prompt(2))
    assert (again.output_ids, again.cached_tokens) == (answer, FULL_TOKENS)
    assert len(left) == 1


def test_the_connectors_two_sides_work_from_two_processes(rig: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    with rig.connected(folder) as engine:
        cold = engine.one(prompt(1)).output_ids
        engine.settle()
    with VllmServer(rig.model(), connector_config(settings(folder)), log=tmp_path / "log") as server:
        assert server.complete(prompt(1), 16) == (cold, FULL_TOKENS)
        metrics = server.metrics()
        answer, cached = server.complete(prompt(2), 16)
        stored = "vllm:sgkv_written_bytes_total{"
        wait_until(lambda: cached == 0 and stored in server.metrics(), "KV that is stored", timeout=60)
        server.kill()
    assert (
        f'vllm:sgkv_hit_pages_total{{engine="0",model_name="model",tier="disk"}} {FULL_TOKENS // 64}'
        in metrics
    )
    with rig.connected(folder) as engine:
        again = engine.one(prompt(2))
    assert (again.output_ids, again.cached_tokens) == (answer, FULL_TOKENS)
