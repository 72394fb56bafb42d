"""Conversions between number formats in integer arithmetic.

Hardware, compiler and interpreter round conversions to 16 and 8 bits differently (Triton's interpreter
truncates to bfloat16 and loses carries in fp8); these give the same bits everywhere, and need no GPU that
knows the format. Half goes to even. Numbers are finite.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def widened(raw: tl.tensor, bfloat16: tl.constexpr) -> tl.tensor:
    """float32 of what a pool holds: bfloat16 as its int16 bits, or any other float as itself."""
    return (raw.to(tl.int32) << 16).to(tl.float32, bitcast=True) if bfloat16 else raw.to(tl.float32)


@triton.jit
def narrowed(numbers: tl.tensor, bfloat16: tl.constexpr, kind: tl.constexpr) -> tl.tensor:
    """What a pool holds of float32 numbers: the int16 bits of bfloat16, or `kind`."""
    if bfloat16:
        bits = numbers.to(tl.uint32, bitcast=True)
        narrow = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(tl.int16)
    else:
        narrow = numbers.to(kind)
    return narrow


@triton.jit
def to_int8(quotients: tl.tensor) -> tl.tensor:
    """int8 of numbers within -127 and 127: adding 1.5 * 2**23 leaves no bits for a fraction."""
    return ((quotients + 12582912.0) - 12582912.0).to(tl.int8)


@triton.jit
def to_e4m3(quotients: tl.tensor) -> tl.tensor:
    """fp8 e4m3 of numbers within -448 and 448, as int8 bits.

    From 2**-6 on the mantissa is rounded to three bits, a carry into the exponent included, and the
    exponent biased by 7 instead of 127. Below, a code counts multiples of 2**-9, which are what is left
    of a number once 2**14 is added to it.
    """
    bits = quotients.to(tl.uint32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    normal = ((magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - (120 << 3)
    small = (tl.abs(quotients) + 16384.0).to(tl.uint32, bitcast=True) - 0x46800000
    code = tl.where(magnitude < 0x3C800000, small, normal)
    return (((bits >> 24) & 0x80) | code).to(tl.int8)


@triton.jit
def from_e4m3(codes: tl.tensor) -> tl.tensor:
    """float32 of fp8 e4m3 given as int8 bits."""
    bits = codes.to(tl.uint8, bitcast=True).to(tl.uint32)
    magnitude = bits & 0x7F
    normal = ((magnitude << 20) + (120 << 23)).to(tl.float32, bitcast=True)
    small = magnitude.to(tl.float32) * 0.001953125
    size = tl.where(magnitude < 8, small, normal)
    return tl.where(bits >= 0x80, -size, size)
