"""Two ranks of one server with faults of their own: the same prefix on both, and nobody waits for ever."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.rank import take_part

pytestmark = pytest.mark.slow

ROUNDS = 60
ROOT = Path(__file__).parents[2]


def run(tmp_path: Path) -> list[list[dict[str, int]]]:
    """One rank is another process, the other is this one."""
    meeting, folder = str(tmp_path / "meeting"), tmp_path / "kv"
    command = [sys.executable, "-m", "tests.faults.rank", "1", meeting, str(folder), str(ROUNDS)]
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as other:
        try:
            mine = take_part(0, meeting, folder, ROUNDS)
            said, errors = other.communicate(timeout=60)
        finally:
            other.kill()
    assert other.returncode == 0, errors[-3000:]
    return [mine, json.loads(said.splitlines()[-1])]


def test_ranks_with_faults_of_their_own_agree_on_every_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    first, second = run(tmp_path)
    assert len(first) == len(second) == ROUNDS
    for one, other in zip(first, second, strict=True):
        assert one["agreed"] == other["agreed"] == min(one["found"], other["found"])
        assert one["done"] == other["done"] == min(one["read"], other["read"])
        assert one["wrong"] == other["wrong"] == 0
    assert any(one["found"] != other["found"] for one, other in zip(first, second, strict=True))
    assert any(one["read"] != other["read"] for one, other in zip(first, second, strict=True))
    assert any(round_["done"] for round_ in first)
