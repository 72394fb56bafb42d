"""Hashes of one namespace, each with the set of places that hold it as the bits of one number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

HASH_BYTES = 16
"""Of a page hash, which is a SHA-256: enough to tell 10^7 of them apart."""
SHARDS = 256
_SMALL = 8192
"""Records that are swept in one step."""


class HolderTable:
    """Not thread-safe. A record is about 150 bytes, however many places hold it.

    Many small dictionaries, because one that holds millions stops everything while it grows. Hashes that
    come together mostly have the same holders: they then share one number.
    """

    def __init__(self) -> None:
        self._shards: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def add(self, hashes: Iterable[bytes], bit: int) -> int:
        """Note one more holder of each hash; how many hashes had none before."""
        shards, joined, new = self._shards, dict[int, int](), 0
        for key in hashes:
            shard = shards[key[0]]
            old = shard.get(key)
            if old is None:
                shard[key] = bit
                new += 1
            elif not old & bit:
                shard[key] = joined.get(old) or joined.setdefault(old, old | bit)
        return new

    def discard(self, hashes: Iterable[bytes], bit: int) -> int:
        """Note that a holder has none of the hashes any more; how many have no holder now."""
        shards, parted, gone = self._shards, dict[int, int](), 0
        for key in hashes:
            shard = shards[key[0]]
            old = shard.get(key)
            if old is None or not old & bit:
                continue
            if old == bit:
                del shard[key]
                gone += 1
            else:
                shard[key] = parted.get(old) or parted.setdefault(old, old & ~bit)
        return gone

    def holders(self, hashes: Sequence[bytes]) -> list[int]:
        """Who holds each hash; 0 is nobody."""
        shards = self._shards
        return [shards[key[0]].get(key, 0) for key in hashes]

    def steps(self) -> list[range]:
        """The shards to sweep, in pieces that each take milliseconds."""
        whole = range(SHARDS)
        return [whole] if len(self) < _SMALL else [whole[at : at + 1] for at in whole]

    def sweep(self, shards: range, dead: int) -> int:
        """Take holders that are no more out of some shards; how many hashes have none now."""
        gone = 0
        for at in shards:
            shard = self._shards[at]
            touched = [(key, old) for key, old in shard.items() if old & dead]
            left, gone_here = _without(touched, dead)
            shard.update(left)
            for key in gone_here:
                del shard[key]
            gone += len(gone_here)
        return gone


def _without(records: Iterable[tuple[bytes, int]], dead: int) -> tuple[dict[bytes, int], list[bytes]]:
    parted: dict[int, int] = {}
    left: dict[bytes, int] = {}
    gone: list[bytes] = []
    for key, old in records:
        new = parted.get(old)
        if new is None:
            new = parted[old] = old & ~dead
        if new:
            left[key] = new
        else:
            gone.append(key)
    return left, gone
