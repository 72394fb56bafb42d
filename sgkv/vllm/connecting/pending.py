"""Saves under way, and the blocks that they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sgkv.vllm.connecting.messages import Save, Tables


class PendingSaves:
    """Which saves are lost when a block is written to. Scheduler thread.

    vLLM frees the blocks of a request as soon as it has ended or is preempted, and nothing holds them for
    us: what is not copied yet when they are handed out again is not stored.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._blocks: dict[int, set[int]] = {}
        self._readers: dict[int, set[int]] = {}
        self._ended: Counter[int] = Counter()

    def begin(self, save: Save) -> None:
        blocks = blocks_of(save.pages.tables)
        self._blocks[save.number] = blocks
        for block in blocks:
            self._readers.setdefault(block, set()).add(save.number)

    def overwritten(self, blocks: Iterable[int]) -> list[int]:
        """Numbers of the saves that read any of these blocks."""
        found: set[int] = set()
        for block in blocks:
            found |= self._readers.get(block, set())
        return sorted(found)

    def ended(self, numbers: Counter[int]) -> None:
        """Saves that are over, whatever became of them, by how many ranks say so."""
        self._ended += numbers
        for number in [number for number in numbers if self._ended[number] >= self._ranks]:
            del self._ended[number]
            for block in self._blocks.pop(number, ()):
                readers = self._readers[block]
                readers.discard(number)
                if not readers:
                    del self._readers[block]

    def numbers(self) -> list[int]:
        return sorted(self._blocks)


def blocks_of(tables: Tables) -> set[int]:
    """All blocks but vLLM's null block."""
    return {block for table in tables for block in table if block}
