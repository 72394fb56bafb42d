"""The game: any calls, in any order, with everything that can happen to a folder in between."""

from __future__ import annotations

from contextlib import suppress
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sgkv.backends.disk.index import charge
from sgkv.store.span import Span
from tests.model.client import DAMAGES, DISK_BYTES, Client
from tests.model.model import TTL, Model
from tests.model.world import CHUNK_PAGES, blob_files, blob_sizes, on_disk, sequence

PAGES = 11
SHARED = 5
SEQUENCES = [sequence(number, PAGES, SHARED) for number in range(3)]
"""Two full chunks and a tail each; they part in the middle of the second chunk."""
AMBIGUOUS = SEQUENCES[0][CHUNK_PAGES:SHARED]
"""Pages of several chunks: one prompt's chunk is not looked into for another prompt."""

_sequences = st.sampled_from(SEQUENCES)
_bounds = st.tuples(st.integers(0, PAGES - 1), st.integers(1, PAGES)).map(
    lambda ends: (min(ends[0], ends[1] - 1), max(ends[0] + 1, ends[1]))
)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """Any run of a sequence, mostly with what came before it."""
    hashes, (first, stop) = draw(_sequences), draw(_bounds)
    return Span(hashes[first:stop], hashes[:first] if draw(st.integers(0, 3)) else None)


whole_or_part = st.one_of(_sequences.map(Span), spans())


class StoreMachine(RuleBasedStateMachine):
    """A store under test, `main`, and now and then a second one on the same folder, `peer`."""

    arena: ClassVar[bool]
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self._temporary = TemporaryDirectory(prefix="sgkv-game-")
        self.folder = Path(self._temporary.name)
        self.model = Model()
        self.main = Client(self.folder, self.model, self.arena)
        self.peer: Client | None = None
        self.lossless = True
        """Nothing was evicted, refused or damaged since the last clear: what is promised must be there."""
        self.damaged = False
        """Since the last clear."""
        self.alone = True
        """No other store has written since the last clear: then the quota is exact."""
        self.cleared_at = 0
        """Losses that `main` had counted at the last clear."""
        self.floods = 0
        type(self).steps -= 1  # invariants are also looked at before the first step

    @rule(span=whole_or_part)
    def set(self, span: Span) -> None:
        self.main.set(span)

    @rule(span=whole_or_part)
    def get(self, span: Span) -> None:
        must = set() if self.arena else self._on_disk(span)
        self._served(span, must)

    @rule(span=whole_or_part)
    def lookup_then_get(self, span: Span) -> None:
        found = self.main.lookup(span)
        reasons = self.main.get(Span(span.hashes[:found], span.before))
        if self.lossless and not self.arena:
            expired = not all(map(self.model.promised, span.hashes[:found]))
            assert expired or not any(reasons), "a lookup promised more than a read could serve"

    @rule(span=whole_or_part)
    def contains(self, span: Span) -> None:
        self.main.contains(span)

    @rule(pages=st.integers(1, 3 * CHUNK_PAGES), before=st.sampled_from([(), None]))
    def press(self, pages: int, before: tuple[str, ...] | None) -> None:
        """Pages nobody asks for push others out, but no pinned ones; without a position each takes a blob."""
        self.floods += 1
        self.main.set(Span(sequence(100 + self.floods, pages), before))
        if self.model.pinned:
            self._audit()

    @rule(span=whole_or_part)
    def pin(self, span: Span) -> None:
        done = self.main.session.pin(span)
        if not self.damaged:  # a blob that is spoilt can be pinned like any other
            self.model.pinned.update(compress(span.hashes, done))

    @rule(hashes=_sequences)
    def unpin(self, hashes: list[str]) -> None:
        self.main.session.pin(Span(hashes), False)
        self.model.pinned.difference_update(hashes)

    @rule(seconds=st.sampled_from([1, TTL // 3, TTL]))
    def pass_time(self, seconds: int) -> None:
        self.model.now += seconds

    @rule()
    def flush(self) -> None:
        self.main.flush()

    @rule()
    def audit(self) -> None:
        self._audit()

    @rule()
    def clear(self) -> None:
        self.main.session.clear()
        self.model.clear()
        self.lossless, self.damaged, self.alone = True, False, self.peer is None
        self.cleared_at = self.main.losses()
        assert blob_files(self.folder) == []

    @rule()
    def restart(self) -> None:
        self.main.close()
        self._note_losses()
        self._reopen()

    @rule()
    def crash(self) -> None:
        self._note_losses()
        self.main.crash()
        self.lossless = self.lossless and not self.arena  # what was on its way is lost with the process
        self._reopen()
        assert self.main.disk.wait_scanned(20.0)
        assert list((self.folder / "tmp").iterdir()) == []

    @rule(which=st.integers(0, 1000), kind=st.sampled_from(sorted(DAMAGES)))
    def damage(self, which: int, kind: str) -> None:
        if files := blob_files(self.folder):
            with suppress(FileNotFoundError):  # evicted before it could be harmed
                DAMAGES[kind](files[which % len(files)], files[which // 2 % len(files)])
            self.lossless, self.damaged = False, True
            self.model.pinned.clear()

    @rule(span=whole_or_part)
    def peer_set(self, span: Span) -> None:
        self.alone = False
        self.model.pinned.clear()  # pins bind the process that set them
        self._other().set(span)

    @rule(span=whole_or_part)
    def peer_get(self, span: Span) -> None:
        """A second store may not know of the latest clear, but what it serves is right."""
        self._other().get(span)

    @precondition(lambda self: self.peer is not None)
    @rule()
    def peer_leaves(self) -> None:
        self._note_losses()
        self._other().close()
        self.peer = None

    @invariant()
    def holds(self) -> None:
        type(self).steps += 1
        self._note_losses()
        for client in self._clients():
            client.check()
        if self.alone:
            assert self.main.disk.wait_scanned(20.0)  # a start scan counts what it finds beside what is known
            assert self.main.disk.stats().used_bytes <= DISK_BYTES
            assert self.arena or sum(map(charge, blob_sizes(self.folder))) <= DISK_BYTES

    def teardown(self) -> None:
        try:
            self._audit()
        finally:
            for client in self._clients():
                client.close()
            self._temporary.cleanup()

    def _other(self) -> Client:
        if self.peer is None:
            self.peer = Client(self.folder, self.model, arena=False)
        return self.peer

    def _clients(self) -> list[Client]:
        return [self.main, *([self.peer] if self.peer else [])]

    def _note_losses(self) -> None:
        peer = self.peer.losses() if self.peer else 0
        self.lossless = self.lossless and self.main.losses() == self.cleared_at and not peer

    def _reopen(self) -> None:
        self.model.pinned.clear()
        self.main.open()
        self.cleared_at = 0
        self._audit()

    def _audit(self) -> None:
        """Whole prompts are read: what is on disk, pinned, or promised and not lost, is served."""
        for client in self._clients():
            client.flush()
        self._note_losses()
        for hashes in SEQUENCES:
            kept = self.model.pinned | set(hashes if self.lossless else ())
            must = set(filter(self.model.promised, kept.difference(AMBIGUOUS)))
            self._served(Span(hashes), must | self._on_disk(Span(hashes)))

    def _on_disk(self, span: Span) -> set[str]:
        """Pages in good files, that a read of this span can find: it knows where the chunks begin."""
        if span.before != ():
            return set()
        there = on_disk(self.folder, span.hashes, self.model.generation, self.model.now)
        return set(compress(span.hashes, there))

    def _served(self, span: Span, must: set[str]) -> None:
        reasons = self.main.get(span)
        missed = {h: reason for h, reason in zip(span.hashes, reasons, strict=True) if reason and h in must}
        assert not missed, f"pages that must be there were missed: {missed}"
