"""What the compilers for real GPUs make of the kernels, read from the binaries: no GPU is needed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from triton import language as tl

from sgkv.triton_kernels.binaries import TARGETS, Figures
from sgkv.triton_kernels.variants import MODELS, VARIANTS, Model, Variant

pytestmark = pytest.mark.slow

MOST_REGISTERS = 64
"""A thread: with more, fewer than half of a multiprocessor's threads can be there at once."""
MOST_SHARED = 2048
"""Bytes of shared memory a program."""
COPIES = ("pack", "unpack")
WORDS = {8: (tl.int64, "*i64"), 4: (tl.int32, "*i32"), 2: (tl.int16, "*i16"), 1: (tl.uint8, "*u8")}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return request.param


EACH = [
    pytest.param(
        (kernel, model), marks=() if model == "llama8b" else pytest.mark.slow, id=f"{kernel}-{model}"
    )
    for kernel in VARIANTS
    for model in MODELS
]
"""Hundreds of compilations are not quick, though each is."""


@pytest.fixture(params=EACH)
def built(request: pytest.FixtureRequest, target: str) -> tuple[str, Figures]:
    kernel, model = request.param
    return kernel, Variant.of(kernel, MODELS[model], target).figures(target)


def test_nothing_spills_and_rows_are_accessed_128_bits_wide(built: tuple[str, Figures]) -> None:
    """But for the scales: of a tile's heads each thread has at most one, of 32 bits."""
    kernel, figures = built
    assert figures.spills == 0
    assert figures.registers <= MOST_REGISTERS
    assert figures.shared <= MOST_SHARED
    narrow = Counter(access.bits for access in figures.data if access.bits != 128)
    assert narrow == ({32: 1} if "8" in kernel else {})
    assert (figures.wide_share == 1) is not bool(narrow)


def test_a_copy_only_looks_up_slots_and_addresses_otherwise(target: str) -> None:
    for kernel in COPIES:
        figures = Variant.of(kernel, MODELS["llama8b"], target).figures(target)
        lookups = [access for access in figures.accesses if access.lookup]
        assert len(lookups) + len(figures.data) == len(figures.accesses)
        assert 2 <= len(lookups) <= 8


@pytest.mark.slow
@pytest.mark.parametrize("row_bytes", [16, 48, 80, 160, 272, 1040, 2032, 32768])
@pytest.mark.parametrize("page_size", [1, 7, 256])
def test_rows_of_any_multiple_of_16_bytes_are_copied_widely(row_bytes: int, page_size: int) -> None:
    model = Model(layers=4, heads=1, dims=(row_bytes // 2, row_bytes // 2), page_size=page_size)
    for kernel, target in product(COPIES, ("sm90", "gfx942")):
        figures = Variant.of(kernel, model, target).figures(target)
        assert figures.wide_share == 1
        assert figures.registers <= MOST_REGISTERS
        assert figures.spills == 0


@pytest.mark.parametrize("alignment", WORDS)
def test_rows_of_less_alignment_are_seen_to_be_accessed_narrowly(alignment: int, target: str) -> None:
    """Also that the figures above can be other than they are."""
    word, pointer = WORDS[alignment]
    aligned = Variant.of("pack", MODELS["llama8b"], target)
    changed = {"alignment": alignment, "word": word, "stride": 257, "row": 257, "step": 256}
    figures = replace(
        aligned,
        pointers={**aligned.pointers, "chunk": pointer},
        constants={**aligned.constants, **changed},
    ).figures(target)
    assert {access.bits for access in figures.data} == {alignment * 8}
    assert figures.wide_share == 0
    assert figures.spills == 0


def test_compilers_leave_explicit_rounding_as_it_is() -> None:
    """Adding a number and taking it away again is not simplified, and no division is approximate."""
    ptx = Variant.of("pack_int8", MODELS["llama8b"], "sm90").compiled("sm90")["ptx"]
    added, taken = ptx.count("0f4B400000"), ptx.count("0fCB400000")
    assert added
    assert added == taken
    assert "div.rn.f32" in ptx
    assert not re.search(r"div\.(full|approx)|fma\.rn|cvt\.rn", ptx.replace("div.rn.f32", ""))


def test_what_is_said_of_addresses_in_the_table_is_needed() -> None:
    """Without it the pool's side of a copy is 64 bits wide, and figures show that too."""
    told = Variant.of("pack", MODELS["llama8b"], "sm90")
    untold = replace(told, constants={**told.constants, "alignment": 8})
    assert Counter(access.bits for access in untold.figures("sm90").data) == {64: 8, 128: 4}
