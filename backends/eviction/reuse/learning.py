"""What was seen of each kind of blob, and what blobs of it are worth at each age."""

from __future__ import annotations

from collections import defaultdict

from sgkv.backends.eviction.reuse.hazard import Hazard, age_class, worth_by_age

_TURNS = 8
"""A kind is studied every so many epochs, so that no epoch takes long."""
_MEMORY = 256
"""Epochs after which what was seen counts half."""


class Learned:
    """Estimates over all kinds of a policy."""

    def __init__(self) -> None:
        self._all = Hazard()
        self._kinds: defaultdict[int, Hazard] = defaultdict(Hazard)
        self._worth: dict[int, list[float]] = {}
        self._usual = worth_by_age(self._all.shape())
        """Of a kind that was not studied yet."""
        self._epochs = 0

    def use(self, kind: int, age: float) -> None:
        """A blob was used `age` seconds after its last use."""
        at = age_class(age)
        self._all.uses[at] += 1
        self._kinds[kind].uses[at] += 1

    def expose(self, kind: int, age: float, seconds: float) -> None:
        """Blobs of about this age could have been used for so many blob seconds."""
        at = age_class(age)
        self._all.exposure[at] += seconds
        self._kinds[kind].exposure[at] += seconds

    def study(self) -> None:
        """Bring a part of the estimates up to date; once an epoch."""
        self._epochs += 1
        shape = self._all.shape()
        self._usual = worth_by_age(shape)
        for nth, (kind, seen) in enumerate(self._kinds.items()):
            if (nth + self._epochs) % _TURNS == 0 or kind not in self._worth:
                self._worth[kind] = worth_by_age(seen.rates(shape))
        if self._epochs % _MEMORY == 0:
            for hazard in (self._all, *self._kinds.values()):
                hazard.fade(0.5)

    def worth(self, kind: int, age: float) -> float:
        """Uses a second of room, of a blob of this kind and age in seconds."""
        return self._worth.get(kind, self._usual)[age_class(age)]
