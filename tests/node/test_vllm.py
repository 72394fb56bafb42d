"""vLLM's tier on a daemon."""

import pytest

from sgkv.testing.node import NodeProcess
from tests.vllm.rig import FULL_TOKENS, Rig, prompt, same

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def test_an_engine_finds_in_the_daemon_what_a_killed_one_stored(vllm_host, tmp_path):
    rig = Rig(vllm_host, tmp_path)
    with NodeProcess(tmp_path / "node", {"tiers": [{"type": "cpu", "capacity": "64MiB"}]}) as daemon:
        attached = {"mode": "attach", "node": {"socket": str(daemon.socket)}}
        writer = rig.engine(tmp_path / "unused", store=attached)
        cold = writer.one(prompt(1))
        writer.settle()
        left = writer.kill()
        with rig.engine(tmp_path / "unused", store=attached) as reader:
            answer = reader.one(prompt(1))
        assert answer.cached_tokens == FULL_TOKENS
        assert same(answer, cold)
        assert not daemon.status()["tiers"]["cpu"]["leases"]
    for path in left:
        path.unlink(missing_ok=True)
