"""The examples of docs/kernels.md do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from sgkv.triton_kernels.variants import VARIANTS

PAGE = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()


def test_the_examples_run() -> None:
    names: dict[str, object] = {}
    first, second = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(first, names)
    pool, slots = names["pool"], names["slots"]
    for plane in pool.planes:
        for tensor in plane.tensors:
            assert torch.equal(tensor[slots], tensor[slots + 512])
    exec(second, names)
    assert not torch.equal(pool.planes[0].tensors[0][slots], pool.planes[0].tensors[0][slots + 512])


def test_the_table_has_every_kernel() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(VARIANTS)
