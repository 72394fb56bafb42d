"""Two ranks of one server with faults of their own: the same prefix on both, and nobody waits for ever."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROUNDS = 60
ROOT = Path(__file__).parents[2]


def run(tmp_path: Path) -> list[list[dict[str, int]]]:
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.faults.rank"]
    rest = [str(tmp_path / "meeting"), str(tmp_path / "kv"), str(ROUNDS)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), *rest], cwd=ROOT, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        said = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (_, errors) in zip(ranks, said, strict=True):
        assert rank.returncode == 0, errors[-3000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in said]


def test_ranks_with_faults_of_their_own_agree_on_every_prefix(tmp_path: Path) -> None:
    first, second = run(tmp_path)
    assert len(first) == len(second) == ROUNDS
    for one, other in zip(first, second, strict=True):
        assert one["agreed"] == other["agreed"] == min(one["found"], other["found"])
        assert one["done"] == other["done"] == min(one["read"], other["read"])
        assert one["wrong"] == other["wrong"] == 0
    assert any(one["found"] != other["found"] for one, other in zip(first, second, strict=True))
    assert any(one["read"] != other["read"] for one, other in zip(first, second, strict=True))
    assert any(round_["done"] for round_ in first)
