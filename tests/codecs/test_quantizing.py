"""Pages with fewer bits a number: what is lost, and that nothing else is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sgkv.backends.base import Status
from sgkv.backends.disk import DiskBackend
from sgkv.chunk.layout import Order, PageLayout
from sgkv.codecs.backend import CodedBackend
from sgkv.codecs.coding import Recipe
from sgkv.codecs.errors import CodecError
from sgkv.codecs.quantizing import FORMATS, Quantize
from sgkv.codecs.squeezing import chain
from sgkv.config import Config, ConfigError, load
from tests.codecs.conftest import LAYOUT, Chunk

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
EPSILON = {"bfloat16": 2**-8, "float16": 2**-10, "float32": 2**-23}
"""Of rounding to the dtype, relative."""


def page_of(numbers: torch.Tensor, dtype: str) -> bytes:
    return numbers.to(DTYPES[dtype]).view(torch.uint8).numpy().tobytes()


def numbers_of(page: bytes, dtype: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(page), dtype=DTYPES[dtype]).float()


def random_page(rows: int, width: int, seed: int, spread: float = 3.0) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    scales = torch.exp(spread * torch.randn(rows, 1, generator=source))
    return torch.randn(rows, width, generator=source) * scales


def most_lost(name: str, rows: torch.Tensor, dtype: str) -> torch.Tensor:
    """The bound of docs/codecs.md on what is lost of each number."""
    code = FORMATS[name]
    grouped = rows.reshape(-1, code.group(rows.shape[-1]))
    largest = grouped.abs().amax(1, keepdim=True)
    if name == "int8":
        lost = largest / 127 / 2
    elif name == "fp8":
        lost = torch.maximum(grouped.abs() / 16, largest / 448 / 1024)
    elif name == "int4":
        lost = largest * (1 + 2**-7) / 7 / 2
    else:
        lost = largest * (1 + 2**-7) * 0.152
    return (lost + (grouped.abs() + lost) * EPSILON[dtype]).reshape(rows.shape) * 1.0001


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(FORMATS)),
    st.sampled_from(sorted(DTYPES)),
    st.integers(1, 40),
    st.sampled_from([2, 16, 64, 80, 128, 192]),
    st.integers(0, 2**32),
)
def test_what_is_lost_is_within_its_bound(name: str, dtype: str, rows: int, width: int, seed: int) -> None:
    numbers = random_page(rows, width, seed, 1.0)
    page = page_of(numbers, dtype)
    step = Quantize((name,), dtype, (width * DTYPES[dtype].itemsize,))
    read = step.restore(step.squeeze(page), len(page))
    assert len(read) == len(page)
    before, after = numbers_of(page, dtype).reshape(rows, width), numbers_of(read, dtype).reshape(rows, width)
    assert ((before - after).abs() <= most_lost(name, before, dtype)).all()


def test_fp8_is_torchs() -> None:
    numbers = torch.cat([torch.linspace(-448, 448, 100_001), torch.logspace(-12, 2.6, 50_000, 2.0)])
    expected = numbers.to(torch.float8_e4m3fn)
    codes = FORMATS["fp8"].encode(numbers.numpy())
    assert np.array_equal(codes, expected.view(torch.uint8).numpy())
    assert np.array_equal(FORMATS["fp8"].decode(codes), expected.float().numpy())


def test_keys_and_values_each_have_their_own_format() -> None:
    numbers = random_page(32, 64, 1)
    page = page_of(numbers, "bfloat16")
    step = Quantize(("", "int8"), "bfloat16", (128, 128))
    stored = step.squeeze(page)
    read = step.restore(stored, len(page))
    half = len(page) // 2
    assert bytes(read[:half]) == page[:half]
    assert bytes(read[half:]) != page[half:]
    assert len(stored) == half + 16 * (64 + 4)
    assert 0 < step.error(page, read) < 0.01


@pytest.mark.parametrize(
    ("formats", "share"),
    [("int8", (128 + 4) / 256), ("fp8", (128 + 4) / 256), ("int4", (64 + 4) / 256), ("nf4", (64 + 4) / 256)],
)
def test_sizes_are_what_they_say(formats: str, share: float) -> None:
    page = page_of(random_page(64, 128, 2), "bfloat16")
    assert len(Quantize((formats,), "bfloat16", (256,)).squeeze(page)) == share * len(page)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_not_quantized(bad: float) -> None:
    numbers = random_page(4, 16, 3)
    numbers[2, 5] = bad
    with pytest.raises(CodecError):
        Quantize(("int8",), "bfloat16", (32,)).squeeze(page_of(numbers, "bfloat16"))


@pytest.mark.parametrize(
    "name",
    ["quantize:int9:bfloat16:32", "quantize:int8:int64:32", "quantize:int8:bfloat16:32+32", "quantize:int8",
     "quantize:int8:bfloat16:3", "quantize:int8:bfloat16:x"],
)  # fmt: skip
def test_names_that_say_nothing_are_refused(name: str) -> None:
    with pytest.raises(CodecError):
        chain([name])


@given(st.binary(max_size=200))
def test_bytes_that_were_never_made_are_refused_or_are_a_page(stored: bytes) -> None:
    step = Quantize(("nf4",), "bfloat16", (32,))
    with suppress(CodecError):
        assert len(step.restore(stored, 128)) == 128


GOLDEN = {
    "int8": "0402013c0402013b7f8100407f009a40",
    "fp8": "2549123b2549123a7efe00767e00fb76",
    "int4": "133e133d0ea77ea1",
    "nf4": "803f803e0fc77fc1",
}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_what_is_stored_is_what_it_was_in_the_first_version(name: str) -> None:
    """Bytes on disk: a page of two rows of four numbers."""
    page = np.array([1.0, -1.0, 0.0, 0.5, 0.25, 0.0, -0.2, 0.125], "<f4").tobytes()
    step = Quantize((name,), "float32", (16,))
    assert bytes(step.squeeze(page)).hex() == GOLDEN[name]


@pytest.fixture
def disk(tmp_path: Path) -> DiskBackend:
    return DiskBackend(tmp_path / "kv", 64 << 20, min_free_bytes=0)


def float_chunk(spoiled: bool = False) -> Chunk:
    pages = []
    for seed in range(4):
        numbers = random_page(LAYOUT.page_bytes // 32, 16, seed)
        if spoiled and seed == 2:
            numbers[0, 0] = float("inf")
        pages.append(page_of(numbers, "bfloat16"))
    return Chunk([f"{1:032x}{at:032x}" for at in range(4)], pages)


def read_back(backend: CodedBackend, chunk: Chunk) -> list[bytes]:
    read = chunk.read()
    assert backend.get([read.item()]) == [Status.OK]
    assert read.outcomes == [None] * 4, "the checksums are those of what is read"
    return [bytes(page[0]) for page in read.pages]


@pytest.mark.parametrize("squeeze", ["", "zstd:1"])
def test_a_tier_that_quantizes_gives_checked_pages(disk: DiskBackend, squeeze: str) -> None:
    chunk = float_chunk()
    with_loss = CodedBackend(disk, Recipe(squeeze, quantize=("int8", "fp8")))
    assert with_loss.put([chunk.put_item()]) == [Status.OK]
    read = read_back(with_loss, chunk)
    assert read != list(chunk.pages)
    assert read == read_back(CodedBackend(disk), chunk), "whoever opens it, and with whatever recipe"
    counters = with_loss.stats().counters
    assert counters["coded_quantized_blobs"] == 1
    assert 0 < counters["coded_quantized_error_ppm"] < 40_000
    assert counters["coded_stored_bytes"] < counters["coded_raw_bytes"]


def test_what_would_lose_too_much_loses_nothing(disk: DiskBackend) -> None:
    chunk = float_chunk()
    careful = CodedBackend(disk, Recipe("", quantize=("nf4", "nf4"), most_error=0.01))
    assert careful.put([chunk.put_item()]) == [Status.OK]
    assert read_back(careful, chunk) == list(chunk.pages)
    assert careful.stats().counters["coded_quantized_error_ppm"] > 10_000


def test_pages_that_cannot_be_quantized_lose_nothing(disk: DiskBackend) -> None:
    chunk = float_chunk(spoiled=True)
    backend = CodedBackend(disk, Recipe("zstd:1", quantize=("int8", "int8")))
    assert backend.put([chunk.put_item()]) == [Status.OK]
    assert read_back(backend, chunk) == list(chunk.pages)


def test_only_floats_of_a_known_order_are_quantized() -> None:
    recipe = Recipe("", quantize=("int8", "nf4"))
    assert recipe.lossy_chain(LAYOUT).names == ("quantize:int8+nf4:bfloat16:32+32",)
    latent = PageLayout(Order.TOKEN, "bfloat16", 64, 4, 1, (1152,))
    assert recipe.lossy_chain(latent).names == ("quantize:int8:bfloat16:1152",)
    for other in (
        PageLayout(Order.OPAQUE, "bfloat16", 1, 1, 1, (512,)),
        PageLayout(Order.LAYER, "uint8:fp8_e4m3", 16, 2, 2, (32, 32)),
    ):
        assert recipe.lossy_chain(other) is None


def config(**quantize: object) -> Config:
    tier = {"type": "disk", "path": "/tmp/kv", "codec": {"quantize": quantize}}
    return load({"tiers": [tier]}, environ={}).config


def test_what_is_lost_sets_kv_apart_unless_mixing_is_wanted() -> None:
    assert config().losses == []
    assert config(k="fp8", v="int4").losses == ["quantized k=fp8 v=int4"]
    assert config(k="fp8", allow_mixing=True).losses == []
    with pytest.raises(ConfigError, match=r"codec\.quantize\.k"):
        config(k="int3")


def test_random_ciphers_of_quantized_pages_are_refused(disk: DiskBackend) -> None:
    chunk = float_chunk()
    backend = CodedBackend(disk, Recipe("", quantize=("int4", "int4")))
    item = chunk.put_item()
    assert backend.put([item]) == [Status.OK]
    path = next((disk._layout.blobs and Path(disk._layout.blobs)).rglob(f"*{item.key[-8:]}"))
    raw = bytearray(path.read_bytes())
    for _ in range(50):
        damaged = bytearray(raw)
        damaged[int.from_bytes(os.urandom(4)) % len(raw)] ^= 1 << os.urandom(1)[0] % 8
        path.write_bytes(damaged)
        read = chunk.read()
        assert backend.get([read.item()]) != [Status.OK] or any(read.outcomes) or damaged == raw
