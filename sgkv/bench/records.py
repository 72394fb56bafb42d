"""What a benchmark reports: one figure a case, what it is compared with, and whether that is enough."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

Figure = Literal[
    "value", "ratio_to_raw", "cpu_ratio_to_raw", "ratio_to_peer", "registers", "spills", "wide_share"
]


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit that one figure of a record must keep."""

    figure: Figure
    relation: Literal["<=", ">="]
    limit: float
    note: str = ""
    """What the limit is measured in or against, e.g. ``ms`` or ``of memcpy``."""

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:g} {self.note}".strip()

    def judge(self, record: Record) -> bool | None:
        """Whether the record keeps it.

        None where the figure was not measured, or misses it by less than twice its error.
        """
        figure: float | None = getattr(record, self.figure)
        if figure is None:
            return None
        beyond = figure - self.limit if self.relation == "<=" else self.limit - figure
        if beyond <= 0:
            return True
        error = record.error if self.figure == "value" else None
        return None if error is not None and beyond <= 2 * error else False


@dataclass(frozen=True, slots=True)
class Record:
    """One case. Both speed ratios are better when larger, the ratio of CPU times when smaller."""

    suite: str
    case: str
    value: float
    unit: str
    error: float | None = None
    """Standard error of the value, where it is known; infinite where it was measured once."""
    ratio_to_raw: float | None = None
    """Our speed over that of the plainest code which moves the same bytes."""
    cpu_ratio_to_raw: float | None = None
    """Our CPU seconds, of all threads, over those of the plainest code."""
    ratio_to_peer: float | None = None
    """Our speed over that of SGLang's own way to do the same."""
    registers: int | None = None
    """Of a compiled kernel: registers a thread."""
    spills: int | None = None
    """Of a compiled kernel: bytes or registers that did not fit."""
    wide_share: float | None = None
    """Of a compiled kernel: how many of its accesses to rows move 128 bits a thread."""
    stored_share: float | None = None
    """Of a codec: bytes that it keeps of one byte."""
    relative_error: float | None = None
    """Of a codec: root mean square of what is lost, over that of the page."""
    bars: tuple[Bar, ...] = ()

    @property
    def bar(self) -> str | None:
        return ", ".join(map(str, self.bars)) or None

    @property
    def ok(self) -> bool | None:
        """False where a bar is missed; None where there is none, or one could not be judged."""
        verdicts = [bar.judge(self) for bar in self.bars]
        if False in verdicts:
            return False
        return True if verdicts and None not in verdicts else None

    def as_json(self) -> dict[str, str | float | bool | None]:
        """The form of `--json`; figures rounded to what they can mean."""
        return {
            "suite": self.suite,
            "case": self.case,
            "value": _rounded(self.value),
            "unit": self.unit,
            "error": _rounded(self.error),
            "ratio_to_raw": _rounded(self.ratio_to_raw),
            "cpu_ratio_to_raw": _rounded(self.cpu_ratio_to_raw),
            "ratio_to_peer": _rounded(self.ratio_to_peer),
            "registers": self.registers,
            "spills": self.spills,
            "wide_share": _rounded(self.wide_share),
            "stored_share": _rounded(self.stored_share),
            "relative_error": _rounded(self.relative_error),
            "bar": self.bar,
            "ok": self.ok,
        }


def _rounded(figure: float | None) -> float | None:
    return None if figure is None or not isfinite(figure) else float(f"{figure:.4g}")
