"""Chains of buffers: what is left of one, and its end."""

from __future__ import annotations

from collections.abc import Sequence

from sgkv.backends.base import Buffer


def after(buffers: Sequence[Buffer], size: int) -> list[Buffer]:
    """What follows the first `size` bytes of a chain."""
    for at, buffer in enumerate(buffers):
        if size < len(buffer):
            return [buffer[size:], *buffers[at + 1 :]]
        size -= len(buffer)
    return []


def cut_tail(buffers: Sequence[Buffer], most: int) -> tuple[list[Buffer], list[Buffer]]:
    """A chain cut in two: everything but its last `most` bytes, and these."""
    left = bulk = max(0, sum(map(len, buffers)) - most)
    head: list[Buffer] = []
    for buffer in buffers:
        if not left:
            break
        head.append(buffer[:left])
        left -= len(head[-1])
    return head, after(buffers, bulk)
