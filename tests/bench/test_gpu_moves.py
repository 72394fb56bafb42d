"""How a GPU's moves are measured, with a CPU as the device: all but the figures is the same."""

from __future__ import annotations

import torch

from sgkv.bench.effort import Effort
from sgkv.bench.gpu import CHUNK_TOKENS, Moves, speeds
from sgkv.triton_kernels.variants import Model

MODEL = Model(layers=2, heads=2, dims=(16, 16))
CPU = torch.device("cpu")


def test_each_way_is_beside_a_plain_copy() -> None:
    records = list(speeds("tiny", MODEL, CPU, Effort(scale=0.1, rounds=1)))
    assert [record.case for record in records] == ["pack_tiny", "unpack_tiny", "d2h_tiny", "h2d_tiny"]
    assert all(record.value > 0 and record.ratio_to_raw for record in records)
    assert [record.bar for record in records] == [
        ">= 0.85 of a device-to-device copy",
        ">= 0.85 of a device-to-device copy",
        ">= 0.9 of one copy to pinned memory",
        None,
    ]


def test_as_many_bytes_as_the_model_has() -> None:
    moves = Moves(MODEL, CPU, 2 * CHUNK_TOKENS)
    moves.require_intact()
    assert moves.size == 2 * CHUNK_TOKENS * 2 * 2 * 2 * 16 * 2
