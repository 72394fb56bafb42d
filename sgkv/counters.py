"""What happened, counted: one object a store, read by `stats()` and by the metrics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from sgkv.backends.base import Status
from sgkv.reasons import MissReason

Sink = Callable[[str, Mapping[str, str], int], None]
"""Called with (name, labels, amount) for every increment, e.g. to feed Prometheus."""


def _ignore(_name: str, _labels: Mapping[str, str], _amount: int) -> None:
    return None


class Counters:
    """Monotonic counters with at most one label. Any thread; an increment is under a microsecond."""

    def __init__(self, sink: Sink = _ignore) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._values: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, amount: int = 1, *, label: str = "", value: str = "") -> None:
        if amount:
            with self._lock:
                self._values[name, value] += amount
            self._sink(name, {label: value} if label else {}, amount)

    def misses(self, reasons: Iterable[MissReason | None]) -> None:
        """Count the pages of one read that ended as misses, by reason."""
        for reason, pages in Counter(filter(None, reasons)).items():
            self.add("miss_pages", pages, label="reason", value=reason.value)

    def lookup(self, pages: int, found: int, reason: MissReason | None) -> None:
        """Count one lookup, and its pages: those that can be read, and the rest with what ended the run."""
        self.add(
            "lookups", label="result", value="none" if not found else "all" if found >= pages else "part"
        )
        self.add("lookup_pages", found, label="result", value="hit")
        if reason is not None:
            self.add("lookup_pages", pages - found, label="result", value=reason.value)

    def read(
        self,
        served_by: Mapping[str, int],
        page_bytes: int,
        page_tokens: int,
        reasons: Iterable[MissReason | None],
    ) -> None:
        """Count the pages of one read: hits by their tier, misses by their reason."""
        for tier, pages in served_by.items():
            self.hits(tier, pages, page_bytes, page_tokens)
        self.misses(reasons)

    def hits(self, tier: str, pages: int, page_bytes: int, page_tokens: int) -> None:
        """Count pages served, each of so many bytes, which saved computing so many tokens."""
        self.add("hit_pages", pages, label="tier", value=tier)
        self.add("hit_tokens", pages * page_tokens, label="tier", value=tier)
        self.add("read_bytes", pages * page_bytes, label="tier", value=tier)

    def writes(self, tier: str, statuses: Sequence[Status], sizes: Sequence[int]) -> None:
        """Count one batch of puts: bytes that became new blobs, and blobs that were not stored."""
        written = sum(size for size, status in zip(sizes, statuses, strict=True) if status is Status.OK)
        self.add("written_bytes", written, label="tier", value=tier)
        failed = sum(not status.ok for status in statuses)
        self.add("failed_writes", failed, label="tier", value=tier)

    def get(self, name: str, value: str = "") -> int:
        return self._values[name, value]

    def snapshot(self) -> dict[str, int | dict[str, int]]:
        """Totals by name, and by label value where a counter has one."""
        with self._lock:
            values = dict(self._values)
        out: dict[str, int | dict[str, int]] = {}
        for (name, value), amount in sorted(values.items()):
            if value:
                by_value = out.setdefault(name, {})
                assert isinstance(by_value, dict)  # a counter either has a label or has none
                by_value[value] = amount
            else:
                out[name] = amount
        return out
