"""Sizes, durations and shares as people write them, and back again.

`Size`, `Duration`, `Capacity` and `Share` are what the models annotate their fields with. A value is
read leniently (``"8GiB"``, ``8589934592``) and written back in the form a person would choose.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal, TypeAlias

from pydantic import PlainSerializer, PlainValidator

_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15} | _BINARY
_MOST = 2**63 - 1
_LONGEST = 1e9
"""The system's own timers end at 292 years; what nobody means is said instead of met there."""
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z%]*)\s*")

Auto: TypeAlias = Literal["auto"]


@dataclass(frozen=True, slots=True)
class Percent:
    """A share of something known only on the machine: its memory, a file system."""

    value: float
    """0 < value <= 100."""

    def __str__(self) -> str:
        return f"{self.value:g}%"

    def of(self, total: int) -> int:
        """That share of `total`, in whole bytes."""
        return int(total * self.value / 100)


def parse_size(value: object) -> int:
    """Bytes of an integer or of text like ``"8GiB"`` (2**30) or ``"500MB"`` (10**6), in any case."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _whole(value)
    number, unit = _split(value, 'a size like "8GiB", "500MB" or a number of bytes')
    factors = {name.lower(): factor for name, factor in _SIZES.items()} | {"": 1}
    factor = factors.get(unit.lower())
    if factor is None:
        raise ValueError(f"{unit!r} is not a unit of size: write {', '.join(_SIZES)}, e.g. {number}GiB")
    return _whole(int(Fraction(number) * factor))


def parse_duration(value: object) -> float:
    """Seconds of a number or of text like ``"250ms"``, ``"2s"``, ``"7d"``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = (
            float(value) if 0 <= value <= _LONGEST else math.nan
        )  # integers may be too large for a float
    else:
        number, unit = _split(value, 'a duration like "250ms", "2s", "7d" or a number of seconds')
        factor = _SECONDS.get(unit or "s")
        if factor is None:
            raise ValueError(f"{unit!r} is not a unit of time: write {', '.join(_SECONDS)}, e.g. {number}s")
        seconds = float(number) * factor
    if not 0 <= seconds <= _LONGEST:
        raise ValueError(f"{value!r} is not a duration: it must be at most 31 years and not negative")
    return seconds


def parse_capacity(value: object) -> int | Percent | Auto:
    """A size, a share like ``"10%"``, or ``"auto"``."""
    if isinstance(value, Percent):
        return value
    if isinstance(value, str) and value.strip().lower() == "auto":
        return "auto"
    if isinstance(value, str) and value.strip().endswith("%"):
        return _percent(value)
    return parse_size(value)


def format_size(size: int) -> str | int:
    """The largest binary unit that divides `size`, else the plain number of bytes."""
    for unit, factor in reversed(_BINARY.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return size


def approximate_size(size: int) -> str:
    """`size` for a reader: up to four digits and a unit."""
    for unit, factor in reversed(_BINARY.items()):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"


def format_duration(seconds: float) -> str | float:
    """The largest unit that gives back exactly `seconds` and a short number, else plain seconds."""
    for unit, factor in reversed(_SECONDS.items()):
        text = f"{seconds / factor:.6g}{unit}"
        if seconds >= factor and "e" not in text and float(text.removesuffix(unit)) * factor == seconds:
            return text
    return seconds


def format_capacity(value: int | Percent | Auto) -> str | int:
    return format_size(value) if isinstance(value, int) else str(value)


def _split(value: object, expected: str) -> tuple[str, str]:
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not {expected}")
    return found[1], found[2]


def _whole(size: float) -> int:
    if size > _MOST:
        raise ValueError(f"a size of more than {_MOST // 2**50} PiB is none that anything could have")
    if not size >= 0 or size != int(size):
        raise ValueError(f"{size!r} is not a whole, non-negative number of bytes")
    return int(size)


def _percent(value: str) -> Percent:
    number, _ = _split(value, 'a share like "10%"')
    if not 0 < float(number) <= 100:
        raise ValueError(f"{value!r} is not a share: write more than 0% and at most 100%")
    return Percent(float(number))


Size = Annotated[int, PlainValidator(parse_size), PlainSerializer(format_size)]
"""Bytes."""

Duration = Annotated[float, PlainValidator(parse_duration), PlainSerializer(format_duration)]
"""Seconds."""

Capacity = Annotated[int | Percent | Auto, PlainValidator(parse_capacity), PlainSerializer(format_capacity)]
"""Bytes, a share of what the machine has, or for us to choose."""
