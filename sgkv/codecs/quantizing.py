"""Pages with fewer bits a number: keys and values each in a format of their own.

Numbers of one token and head share a scale. What a reader gets is the same on every machine, bit for bit:
each operation here is a single one of IEEE 754, or on integers. So the checksums of a coded blob's own header
are those of the pages as they will be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sgkv.codecs.errors import CodecError
from sgkv.codecs.squeezing import Bytes, Step

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
Codes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

_SMALLEST = np.float32(2.0**-100)
"""What the largest of a row is at least taken for, so that scales stay normal numbers (as in the kernels)."""
_GROUP = 64
"""Numbers of a 4-bit format that share a scale, where rows divide by it."""
_LARGEST_HALF = np.float32(65504)


@dataclass(frozen=True, slots=True)
class Format:
    """How numbers become codes."""

    bits: int
    levels: float
    """The largest code as a number; 4-bit formats have it in their table."""
    encode: Callable[[Numbers], Codes]
    """Codes of quotients within -levels..levels, one a byte."""
    decode: Callable[[Codes], Numbers]

    def group(self, row: int) -> int:
        """Numbers that share a scale, in rows of so many."""
        return _GROUP if self.bits == 4 and not row % _GROUP else row


class Quantize(Step):
    """The keys and the values of a page, or whatever its planes are, each quantized by rows."""

    loses = True

    def __init__(self, formats: tuple[str, ...], dtype: str, rows: tuple[int, ...]) -> None:
        """A format for each plane, empty for one that stays as it is; bytes of a row of each plane.

        A row is one token's and head's. Raises CodecError for what nobody knows.
        """
        if dtype not in _ITEM or len(formats) != len(rows):
            raise CodecError(f"pages of {dtype} with {len(rows)} planes cannot be quantized as {formats}")
        self._planes = tuple(zip(map(_known, formats), (row // _ITEM[dtype] for row in rows), strict=True))
        if any(row % (2 * _ITEM[dtype]) for row in rows):
            raise CodecError(f"rows of {rows} bytes cannot be quantized")
        self._dtype = dtype
        self._row_bytes = rows
        self.name = step_name(formats, dtype, rows)

    @classmethod
    def parse(cls, parameter: str) -> Quantize:
        """Of what follows ``quantize:`` in a name. Raises CodecError and ValueError."""
        formats, dtype, rows = parameter.split(":")
        named = tuple("" if one == "none" else one for one in formats.split("+"))
        return cls(named, dtype, tuple(map(int, rows.split("+"))))

    def squeeze(self, data: Bytes) -> Bytes:
        """Raises CodecError for a page with numbers that are not finite."""
        return b"".join(map(self._code, self._cut(data), self._planes))

    def restore(self, data: Bytes, size: int) -> Bytes:
        rows, sizes = self._sizes(size)
        if len(data) != sum(sizes):
            raise CodecError(f"{len(data)} quantized bytes are no page of {size}")
        view, at, planes = memoryview(data), 0, []
        for plane, stored in zip(self._planes, sizes, strict=True):
            planes.append(self._plain(view[at : at + stored], plane, rows))
            at += stored
        return b"".join(planes)

    def coded_size(self, size: int) -> int:
        return sum(self._sizes(size)[1])

    def error(self, page: Bytes, restored: Bytes) -> float:
        """Root of the mean square of what is lost over that of the page, of the plane where that is worst."""
        worst = 0.0
        for before, after in zip(self._cut(page), self._cut(restored), strict=True):
            numbers = _numbers(before, self._dtype).astype(np.float64)
            lost = float(np.square(numbers - _numbers(after, self._dtype)).sum())
            worst = max(worst, (lost / max(float(np.square(numbers).sum()), 1e-300)) ** 0.5)
        return worst

    def _sizes(self, size: int) -> tuple[int, list[int]]:
        """(rows of each plane, stored bytes of each plane) of a page of so many bytes."""
        rows, rest = divmod(size, sum(self._row_bytes))
        if rest:
            raise CodecError(f"{size} bytes are no rows of {self._row_bytes}")
        both = zip(self._planes, self._row_bytes, strict=True)
        return rows, [_stored(plane, rows, width) for plane, width in both]

    def _cut(self, data: Bytes) -> list[memoryview]:
        """The planes of a page."""
        view = memoryview(data)
        rows, rest = divmod(len(view), sum(self._row_bytes))
        if rest:
            raise CodecError(f"{len(view)} bytes are no rows of {self._row_bytes}")
        ends = [rows * sum(self._row_bytes[: at + 1]) for at in range(len(self._row_bytes))]
        return [view[end - rows * row : end] for end, row in zip(ends, self._row_bytes, strict=True)]

    def _code(self, data: memoryview, plane: tuple[Format | None, int]) -> bytes:
        code, row = plane
        if code is None:
            return bytes(data)
        numbers = _numbers(data, self._dtype).reshape(-1, code.group(row))
        largest = np.maximum(np.abs(numbers).max(1), _SMALLEST)
        if not np.isfinite(largest).all():
            raise CodecError("a page with numbers that are not finite")
        scales = _as_kept(largest / np.float32(code.levels), code)
        quotients = numbers / scales[:, None]
        np.clip(quotients, -code.levels, code.levels, out=quotients)
        codes = code.encode(quotients)
        if code.bits == 4:
            flat = codes.reshape(-1, 2)
            codes = (flat[:, 0] | flat[:, 1] << 4).astype(np.uint8)
        return _kept(scales, code) + codes.tobytes()

    def _plain(self, data: memoryview, plane: tuple[Format | None, int], rows: int) -> bytes:
        code, row = plane
        if code is None:
            return bytes(data)
        groups = rows * row // code.group(row)
        width = _scale_bytes(code)
        scales = _scales(data[: groups * width], code)
        codes = np.frombuffer(data[groups * width :], np.uint8)
        if code.bits == 4:
            codes = np.stack([codes & 15, codes >> 4], 1)
        numbers = code.decode(codes.reshape(groups, -1)) * scales[:, None]
        return _bytes(numbers, self._dtype)


def step_name(formats: Sequence[str], dtype: str, rows: Sequence[int]) -> str:
    """What an envelope calls it."""
    return f"quantize:{'+'.join(one or 'none' for one in formats)}:{dtype}:{'+'.join(map(str, rows))}"


def _numbers(data: memoryview, dtype: str) -> Numbers:
    if dtype == "bfloat16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, "<f2" if dtype == "float16" else "<f4").astype(np.float32)


def _bytes(numbers: Numbers, dtype: str) -> bytes:
    """Rounded half to even."""
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(numbers).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    if dtype == "float16":
        return np.clip(numbers, -_LARGEST_HALF, _LARGEST_HALF).astype("<f2").tobytes()
    return numbers.astype("<f4").tobytes()


def _scale_bytes(code: Format) -> int:
    return 2 if code.bits == 4 else 4


def _as_kept(scales: Numbers, code: Format) -> Numbers:
    """Scales as a reader will have them: those of 4 bits are kept in the upper half of a float."""
    if code.bits != 4:
        return scales
    return ((scales.view(np.uint32) + 0xFFFF) & 0xFFFF0000).view(np.float32)  # up, so that nothing is clipped


def _kept(scales: Numbers, code: Format) -> bytes:
    if code.bits != 4:
        return scales.astype("<f4").tobytes()
    return (scales.view(np.uint32) >> 16).astype("<u2").tobytes()


def _scales(data: memoryview, code: Format) -> Numbers:
    return _numbers(data, "bfloat16" if code.bits == 4 else "float32")


def _stored(plane: tuple[Format | None, int], rows: int, width: int) -> int:
    """Bytes of a plane of so many rows."""
    code, row = plane
    if code is None:
        return rows * width
    return rows * row // code.group(row) * _scale_bytes(code) + rows * row * code.bits // 8


def _known(name: str) -> Format | None:
    if name and name not in FORMATS:
        raise CodecError(f"{name!r} is no format that this version knows: {', '.join(FORMATS)}")
    return FORMATS[name] if name else None


def _rounded(quotients: Numbers) -> Codes:
    codes: Codes = np.rint(quotients).astype(np.int8).view(np.uint8)
    return codes


def _signed(codes: Codes) -> Numbers:
    return codes.view(np.int8).astype(np.float32)


def _to_fp8(quotients: Numbers) -> Codes:
    """E4M3 without infinities, rounded half to even (OCP 8-bit floating point specification 1.0)."""
    magnitude = np.abs(quotients)
    bits = magnitude.view(np.uint32)
    normal = ((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - (120 << 3)
    tiny = np.rint(magnitude * np.float32(512)).astype(np.uint32)
    codes = np.where(magnitude < np.float32(2**-6), tiny, normal)
    signed: Codes = (codes | np.signbit(quotients).astype(np.uint32) << 7).astype(np.uint8)
    return signed


def _fp8_numbers() -> Numbers:
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    return np.where(codes & 128, -magnitude, magnitude).astype(np.float32)


def _to_table(table: Numbers) -> Callable[[Numbers], Codes]:
    middles = (table[1:] + table[:-1]) / 2

    def encode(quotients: Numbers) -> Codes:
        codes: Codes = np.searchsorted(middles, quotients).astype(np.uint8)
        return codes

    return encode


_FP8 = _fp8_numbers()
_INT4 = np.arange(-7, 9, dtype=np.float32)
_NF4 = np.array(
    [
        -1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0,
        0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
    ],
    np.float32,
)  # fmt: skip
"""Quantiles of a normal distribution (Dettmers et al., QLoRA, arXiv 2305.14314, appendix E)."""

_ITEM = {"bfloat16": 2, "float16": 2, "float32": 4}
FORMATS: Mapping[str, Format] = {
    "int8": Format(8, 127.0, _rounded, _signed),
    "fp8": Format(8, 448.0, _to_fp8, lambda codes: _FP8[codes]),
    "int4": Format(4, 7.0, lambda quotients: _rounded(quotients + np.float32(7)), lambda codes: _INT4[codes]),
    "nf4": Format(4, 1.0, _to_table(_NF4), lambda codes: _NF4[codes]),
}
