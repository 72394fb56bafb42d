"""What the compilers for real GPUs make of the kernels, read from the binaries: no GPU is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sgkv.triton_kernels.binaries import TARGETS, Figures
from sgkv.triton_kernels.variants import MODELS, VARIANTS, Variant

REGISTERS = {"pack": 64, "unpack": 64}
"""Most registers a thread of an NVIDIA GPU; half of its threads can be there at once with 64."""
SHARED = {"pack": 2048, "unpack": 2048}
"""Most bytes of shared memory a program."""


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[(kernel, model) for kernel in VARIANTS for model in MODELS], ids="-".join)
def built(request: pytest.FixtureRequest, target: str) -> tuple[str, Figures]:
    kernel, model = request.param
    return kernel, VARIANTS[kernel](MODELS[model]).figures(target)


def test_nothing_spills_and_memory_is_accessed_128_bits_wide(built: tuple[str, Figures]) -> None:
    kernel, figures = built
    assert figures.spills == 0
    assert figures.registers <= REGISTERS[kernel]
    assert figures.shared <= SHARED[kernel]
    assert {access.bits for access in figures.data} == {128}
    assert figures.wide_share == 1


@pytest.mark.parametrize(("alignment", "widest"), [(8, 64), (4, 32), (2, 16), (1, 8)])
def test_rows_of_less_alignment_are_seen_to_be_accessed_narrowly(
    alignment: int, widest: int, target: str
) -> None:
    """Also that the figures above can be other than they are."""
    figures = _misaligned(alignment).figures(target)
    assert {access.bits for access in figures.data} == {widest}
    assert figures.wide_share == 0
    assert figures.spills == 0


def _misaligned(alignment: int) -> Variant:
    from triton import language as tl

    words = {8: tl.int64, 4: tl.int32, 2: tl.int16, 1: tl.uint8}
    aligned = VARIANTS["pack"](MODELS["llama8b"])
    changed = {"alignment": alignment, "word": words[alignment], "stride": 257, "row": 257, "step": 256}
    pointers = {**aligned.pointers, "chunk": f"*{'u' if alignment == 1 else 'i'}{alignment * 8}"}
    return replace(aligned, pointers=pointers, constants={**aligned.constants, **changed})
