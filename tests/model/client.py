"""One store of the game, each answer of which is held against the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sgkv.backends.base import Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from sgkv.backends.disk.layout import Layout
from sgkv.backends.faulty import Fault, FaultRule, Faulty
from sgkv.reasons import MissReason
from sgkv.store.session import Session
from sgkv.store.span import Span
from sgkv.store.store import Store
from tests.model.model import TTL, Model
from tests.model.world import FILE_CHARGE, blank, filled, open_session, open_store

DISK_BYTES = 12 * FILE_CHARGE
ARENA_BYTES = 16 * 4096
_ALL = frozenset({"contains", "put", "get", "delete"})
_PATIENCE = 20.0


@dataclass(slots=True)
class Client:
    """Opens one store over a folder, and opens it again after `close` or `crash`."""

    folder: Path
    model: Model
    arena: bool
    store: Store = field(init=False)
    session: Session = field(init=False)
    disk: DiskBackend = field(init=False)
    asked: int = field(init=False)
    _plug: Faulty = field(init=False)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.store = open_store(
            self.folder,
            arena_bytes=ARENA_BYTES if self.arena else 0,
            disk_bytes=DISK_BYTES,
            wrap=self._wrapped,
            clock=lambda: self.model.now,
            ttl=TTL,
        )
        self.session = open_session(self.store)
        self.asked = 0

    def set(self, span: Span) -> list[bool]:
        done = self.session.set(span, filled(span.hashes, self.model.generation), Deadline(_PATIENCE))
        self.model.set(page_hash for page_hash, stored in zip(span.hashes, done, strict=True) if stored)
        return done

    def get(self, span: Span) -> list[MissReason | None]:
        """Read; what is served must be what the model holds."""
        pages = blank(len(span.hashes))
        reasons = self.session.get(span, pages, Deadline(_PATIENCE))
        self.asked += len(pages)
        for page_hash, page, reason in zip(span.hashes, pages, reasons, strict=True):
            if reason is None:
                refusal = self.model.refusal(page_hash, b"".join(page))
                assert refusal is None, f"page {page_hash} was served, but {refusal}"
        return reasons

    def lookup(self, span: Span) -> int:
        """Leading pages that the store says it has; it must not speak of what is not in the model."""
        found = self.session.lookup(span, Deadline(_PATIENCE))
        assert (found.reason is None) == (found.pages == len(span.hashes))
        self._known(span.hashes[: found.pages])
        return found.pages

    def contains(self, span: Span) -> list[bool]:
        flags = self.session.contains(span, Deadline(_PATIENCE))
        self._known([page_hash for page_hash, flag in zip(span.hashes, flags, strict=True) if flag])
        return flags

    def flush(self) -> None:
        """Let everything under way arrive; then nothing is held any more."""
        assert self.store.flush(_PATIENCE)
        stats = self.store.stats()
        assert stats.write_behind_bytes == stats.write_behind_queued == 0
        assert [tier.leases for tier in stats.tiers.values()] == [0] * len(stats.tiers)

    def close(self) -> None:
        self.store.close()

    def crash(self) -> None:
        """As a process that dies: nothing more reaches the folder, and a half-written file stays there."""
        self._plug.set_rules([FaultRule(Fault.STATUS, _ALL, status=Status.CLOSED)])
        self.store.close()
        host, pid, start, number = Layout(str(self.folder)).temp_path().rsplit(".", 3)
        Path(f"{host}.{pid}.{int(start) + 1}.{number}").write_bytes(b"half a blob")

    def losses(self) -> int:
        """Blobs that left the disk, and pages that did not get there, since it was opened."""
        counters = self.store.counters
        lost = counters.get("write_behind_dropped_pages") + counters.get("failed_writes", "disk")
        return lost + self.disk.stats().evicted_blobs

    def check(self) -> None:
        """What holds at any moment."""
        stats = self.store.stats()
        counted = [stats.counters.get(name, {}) for name in ("hit_pages", "miss_pages")]
        assert sum(sum(by_label.values()) for by_label in counted) == self.asked
        assert "internal_errors" not in stats.counters
        assert all(tier.pinned_bytes <= tier.used_bytes for tier in stats.tiers.values())
        bounds = [stats.bounds, *(tier.bounds for tier in stats.tiers.values())]
        assert all(0 <= bound.used <= bound.limit for some in bounds for bound in some.values())
        if self.arena:
            assert stats.tiers["cpu"].used_bytes <= stats.tiers["cpu"].capacity_bytes

    def _known(self, hashes: Sequence[str]) -> None:
        unknown = [page_hash for page_hash in hashes if page_hash not in self.model.entries]
        assert not unknown, f"the store speaks of pages that were never set, or cleared: {unknown}"

    def _wrapped(self, disk: DiskBackend) -> Faulty:
        self.disk = disk
        self._plug = Faulty(disk)
        return self._plug


Damage = Callable[[Path, Path], None]


def _flip(path: Path, _other: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) * 997 // 1000] ^= 1
        path.write_bytes(data)


def _truncate(path: Path, _other: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _empty(path: Path, _other: Path) -> None:
    path.write_bytes(b"")


def _replace(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def _delete(path: Path, _other: Path) -> None:
    path.unlink()


DAMAGES: dict[str, Damage] = {
    "flip": _flip, "truncate": _truncate, "empty": _empty, "replace": _replace, "delete": _delete,
}  # fmt: skip
