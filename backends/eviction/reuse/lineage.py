"""What a blob continues, and what kind of blob it is."""

from __future__ import annotations

_FORK = 3
"""What so many blobs continue is a shared beginning, and no conversation that goes on."""
_MOST = 2
"""Uses and turns are told apart up to here."""
_DEEPEST = 3

Facts = tuple[int, int, int, int, bool]
"""Uses; turns, which is how often the chain was taken up again before this blob was added; blobs before it;
bytes of a whole blob of its chain; whether it is shorter than that, so that it ends its chain. A bare tuple
of such values is nothing that the garbage collector has to look at."""
_UNKNOWN: Facts = (0, 0, -1, 0, False)


def kind_of(facts: Facts) -> int:
    """A number for all blobs that are taken to be used alike."""
    uses, turns, depth, _, short = facts
    deep = min(_DEEPEST, (depth + 1).bit_length() // 2)
    return ((uses * (_MOST + 1) + turns) * (_DEEPEST + 1) + deep) * 2 + short


class Lineage:
    """Links between blobs, also to such as are not there, and the facts of those that are or were."""

    def __init__(self) -> None:
        self._facts: dict[str, Facts] = {}
        self._parents: dict[str, str] = {}
        self._children: dict[str, int] = {}

    def enter(self, key: str, size: int, after: str | None) -> None:
        """A new blob, whose chain is known as far as the one before it is."""
        uses, turns, depth, whole, _ = self._facts.get(after, _UNKNOWN) if after else _UNKNOWN
        forks = after is not None and self._children.get(after, 0) >= _FORK
        turns = 0 if forks else min(_MOST, turns + (uses > 0))
        self._facts[key] = (0, turns, depth + 1, max(size, whole), size < whole)

    def use(self, key: str) -> None:
        """Count a use."""
        uses, turns, depth, whole, short = self._facts[key]
        self._facts[key] = (min(_MOST, uses + 1), turns, depth, whole, short)

    def kind(self, key: str) -> int:
        return kind_of(self._facts[key])

    def forget(self, key: str) -> None:
        """Drop the facts of a blob, not its links."""
        del self._facts[key]

    def link(self, key: str, after: str | None) -> None:
        if after is not None:
            self._parents[key] = after
            self._children[after] = self._children.get(after, 0) + 1

    def unlink(self, key: str) -> str | None:
        """End the link of a blob; the key that nothing continues any more, if there is one."""
        parent = self._parents.pop(key, None)
        if parent is None:
            return None
        self._children[parent] -= 1
        if self._children[parent]:
            return None
        del self._children[parent]
        return parent

    def parent(self, key: str) -> str | None:
        return self._parents.get(key)

    def children(self, key: str) -> int:
        """How many blobs continue this one."""
        return self._children.get(key, 0)
