"""What one native call moves: runs of memory, and where each belongs in a blob."""

from __future__ import annotations

from typing import NamedTuple


class Run(NamedTuple):
    """`size` bytes at `address`, which are the blob's from `offset` on."""

    address: int
    size: int
    offset: int


def line_up(runs: list[Run], run: Run) -> None:
    """Append a run, or make the last one longer where this one goes on from it."""
    last = runs[-1] if runs else None
    if last and last.address + last.size == run.address and last.offset + last.size == run.offset:
        runs[-1] = last._replace(size=last.size + run.size)
    else:
        runs.append(run)
