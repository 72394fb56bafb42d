"""A part of a page: some of its layers and some of its heads, and all of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sgkv.backends.base import Buffer
from sgkv.backends.buffers import after, first
from sgkv.chunk.convert import fill_buffers
from sgkv.chunk.layout import AXES, Order, PageLayout

Rows = npt.NDArray[Any]
"""Rows of one plane, ``[outer][middle][inner]`` in the order of its layout."""


class _Stretch(NamedTuple):
    """A buffer, or a piece of one, that holds whole steps of a plane's outermost axis."""

    plane: int
    start: int
    """Its first step."""
    buffer: Buffer


@dataclass(frozen=True)
class Cut:
    """Which rows of pages laid out as `page` belong to the part; not for opaque pages.

    The part is a page of its own, in the same byte order. Where it lies in one run a plane, `views` shows
    it in place; else `gather` and `scatter` copy it, row by row in one call a buffer.
    """

    page: PageLayout
    layers: range
    """Of the layers of `page`."""
    heads: range

    def __post_init__(self) -> None:
        fits = self.layers.stop <= self.page.layers and self.heads.stop <= self.page.heads
        if self.page.order is Order.OPAQUE or not self.layers or not self.heads or not fits:
            raise ValueError(f"layers {self.layers} and heads {self.heads} are no part of {self.page}")

    @cached_property
    def layout(self) -> PageLayout:
        """Of the part."""
        return replace(self.page, layers=len(self.layers), heads=len(self.heads))

    @property
    def whole(self) -> bool:
        """Whether the part is all of the page."""
        return self.layout == self.page

    @cached_property
    def contiguous(self) -> bool:
        """Whether the part lies in one run a plane."""
        return [len(part) for part in self._bounds[1:]] == list(self.page.shape()[1:])

    def views(self, page: Sequence[Buffer]) -> list[Buffer]:
        """The part where it lies in `page`. Only where it is contiguous."""
        found: list[Buffer] = []
        for start, plane, size in zip(
            accumulate(self.page.plane_bytes, initial=0), self.page.plane_bytes, self.layout.plane_bytes,
            strict=False,
        ):  # fmt: skip
            step = plane // self.page.shape()[0]
            found += first(after(page, start + self._bounds[0].start * step), size)
        return found

    def gather(self, page: Sequence[Buffer], into: Buffer) -> None:
        """Copy the part of `page` into a buffer of exactly its bytes."""
        self._copy(self._stretches(page) or self._stretches([memoryview(b"".join(page))]), into, _take)

    def scatter(self, part: Buffer, page: Sequence[Buffer]) -> None:
        """Copy the part into the buffers of `page`, and leave the rest of them as it is."""
        stretches = self._stretches(page)
        if stretches:
            self._copy(stretches, part, _put)
            return
        joined = memoryview(bytearray(b"".join(page)))
        self._copy(self._stretches([joined]), part, _put)
        fill_buffers(joined, page)

    @cached_property
    def _bounds(self) -> list[range]:
        """Of the part along each axis of the page, outermost first."""
        bounds = {"layer": self.layers, "token": range(self.page.tokens), "head": self.heads}
        return [bounds[axis] for axis in AXES[self.page.order]]

    def _stretches(self, page: Sequence[Buffer]) -> list[_Stretch]:
        """`page` by planes; nothing where its buffers end within a step of an outermost axis."""
        found: list[_Stretch] = []
        plane, step, steps = 0, 0, self.page.shape()[0]
        for buffer in page:
            left = buffer
            while left:
                size = self.page.plane_bytes[plane] // steps
                count = min(len(left) // size, steps - step)
                if not count:
                    return []
                found.append(_Stretch(plane, step, left[: count * size]))
                left, step = left[count * size :], step + count
                if step == steps:
                    plane, step = plane + 1, 0
        return found

    def _copy(self, stretches: Sequence[_Stretch], part: Buffer, copy: Callable[[Rows, Rows], None]) -> None:
        planes = list(self._planes(part))
        outer, middle, inner = self._bounds
        unit = self._unit
        for plane, start, buffer in stretches:
            _, *sizes = self.page.shape()
            rows = _rows(buffer, self.page.rows[plane] * unit, (sizes[0], sizes[1] // unit))
            low, high = max(outer.start, start), min(outer.stop, start + len(rows))
            if low < high:
                here = rows[low - start : high - start, middle.start : middle.stop]
                here = here[:, :, inner.start // unit : inner.stop // unit]
                copy(here, planes[plane][low - outer.start : high - outer.start])

    def _planes(self, part: Buffer) -> Iterator[Rows]:
        """The planes of the part in a buffer of its own."""
        _, middle, inner = self.layout.shape()
        for row, size in zip(self.page.rows, self.layout.plane_bytes, strict=True):
            yield _rows(part[:size], row * self._unit, (middle, inner // self._unit))
            part = part[size:]

    @cached_property
    def _unit(self) -> int:
        """Rows that are copied as one: neighbours along the innermost axis."""
        inner, size = self._bounds[2], self.page.shape()[2]
        together = inner.start % len(inner) == 0 and size % len(inner) == 0
        return len(inner) if together else 1


def _rows(buffer: Buffer, row_bytes: int, inner: tuple[int, int]) -> Rows:
    return np.frombuffer(buffer, np.dtype((np.void, row_bytes))).reshape(-1, *inner)


def _take(page: Rows, part: Rows) -> None:
    np.copyto(part, page)


def _put(page: Rows, part: Rows) -> None:
    np.copyto(page, part)
