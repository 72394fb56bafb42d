"""Launches as Triton's just-in-time compiler sees them: one binary serves every call for a pool.

There is no GPU here, so a stand-in for the driver names the one to compile for, and a launch ends where the
binary is there. All before that is real: arguments, specialisation, compilation.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from sgkv.triton_kernels import copying, quantizing, rotating
from sgkv.triton_kernels.formats import Format, quantized_geometry
from sgkv.triton_kernels.packing import chunk_geometry
from sgkv.triton_kernels.pool import PagedPool
from sgkv.triton_kernels.rotation import Rotation, Turn
from sgkv.triton_kernels.transfer import Transfer
from tests.kernels.pools import Shape

SHAPE = Shape(tokens=300, page_size=16, layers=3, heads=2, dims=(64, 64))
COUNTS = (1, 16, 17, 256)
LAYERS = (None, range(1), range(1, 3))


class H100:
    """What the compiler asks of a driver."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


class Compiled:
    """In the place of a kernel: compiles it for each launch and keeps the binaries apart."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.binaries: set[str] = set()

    def __getitem__(self, grid: tuple[int]) -> Any:
        assert grid[0] >= 1

        def launch(*arguments: Any, **constants: Any) -> None:
            self.binaries.add(self.kernel.warmup(*arguments, grid=grid, **constants).hash)

        return launch


@pytest.fixture(autouse=True)
def h100(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_active", H100())


@pytest.fixture
def pool() -> PagedPool:
    return SHAPE.pool(1)


def some(count: int) -> torch.Tensor:
    """Slots as part of a longer row: their address is any multiple of 8."""
    return torch.arange(count + 1)[1:]


def instead_of(patch: pytest.MonkeyPatch, module: Any, name: str) -> Compiled:
    compiled = Compiled(getattr(module, name))
    patch.setattr(module, name, compiled)
    return compiled


def test_a_copy_each_way(monkeypatch: pytest.MonkeyPatch, pool: PagedPool) -> None:
    kernel = instead_of(monkeypatch, copying, "copy_rows_kernel")
    geometry, chunk = chunk_geometry(pool, 16), SHAPE.chunk(pool)
    for count in COUNTS:
        for layers in LAYERS:
            copying.pack(Transfer.checked(pool, some(count), chunk, geometry, layers))
            copying.unpack(Transfer.checked(pool, some(count), chunk, geometry, layers))
    assert len(kernel.binaries) == 2


@pytest.mark.parametrize("code", Format)
def test_a_quantizing_copy_each_way(monkeypatch: pytest.MonkeyPatch, pool: PagedPool, code: Format) -> None:
    kernel = instead_of(monkeypatch, quantizing, "quantize_rows_kernel")
    geometry = quantized_geometry(pool, 16)
    chunk = torch.zeros(geometry.chunk_bytes(SHAPE.tokens), dtype=torch.uint8)
    for count in COUNTS:
        for layers in LAYERS:
            quantizing.pack(Transfer.checked(pool, some(count), chunk, geometry, layers), code)
            quantizing.unpack(Transfer.checked(pool, some(count), chunk, geometry, layers), code)
    assert len(kernel.binaries) == 2


def test_a_rotation(monkeypatch: pytest.MonkeyPatch, pool: PagedPool) -> None:
    kernel = instead_of(monkeypatch, rotating, "rotate_keys_kernel")
    for count in COUNTS:
        for layers in (range(3), range(1), range(1, 2)):
            rotating.rotate(Turn(pool, some(count), Rotation.by(count, torch.ones(32)), layers))
    assert len(kernel.binaries) == 1
