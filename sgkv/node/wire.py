"""What an engine and the node's daemon say to each other. docs/node.md tells who says what when.

Control only: bytes of pages lie in shared memory and never in a message. Page hashes travel packed, 32
bytes a page; places as packed little-endian 64-bit integers. Times are of CLOCK_MONOTONIC, which all
processes of a machine share. Both sides decode strictly: a message that is not exactly one of these ends
the connection.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Annotated

import msgspec

from sgkv.chunk.layout import PageLayout
from sgkv.identity import Namespace
from sgkv.keys import packed_hashes
from sgkv.store.span import Span

VERSION = 1
"""Of this protocol: both sides must have the same."""
MAX_MESSAGE = 8 << 20
"""Bytes: four times what a call over a million tokens takes."""
_HASH = 32
_PLACE = "q"


_Line = Annotated[str, msgspec.Meta(max_length=512)]


class WireError(Exception):
    """What arrived is not what this protocol allows here."""


class Message(msgspec.Struct, array_like=True, tag=True, forbid_unknown_fields=True):
    """An array whose first item is the name of its kind."""


class Hello(Message):
    """First of every connection."""

    version: int
    token: _Line
    software: _Line
    """For people: what attaches."""


class Welcome(Message):
    """Answers `Hello`, with the descriptor of the arena."""

    instance: str
    """Different for every start of the daemon, and so for every arena."""
    arena_bytes: int
    chunk_tokens: int


class Refused(Message):
    """Answers anything that is not done. The connection goes on, but after a refused `Hello`."""

    why: str
    leaving: bool = False
    """The daemon is shutting down."""


class Open(Message):
    """A namespace that later messages name by the number in the answer."""

    namespace: Namespace
    layout: PageLayout
    producer: _Line


class Opened(Message):
    session: int


class Share(Message):
    """Memory of the engine that the daemon may read and write for it; comes with a descriptor."""

    address: int
    """Where the engine has it: buffers are named by the engine's own addresses."""
    size: int


class Asked(Message):
    """The pages that a message is about."""

    session: int
    until: float
    """Nobody waits for the answer after that."""
    hashes: bytes
    before: bytes | None
    """Pages of the sequence before these; None where they are not known."""

    def span(self) -> Span:
        return Span(
            unpacked_hashes(self.hashes), None if self.before is None else unpacked_hashes(self.before)
        )


class Lookup(Asked):
    """How many leading pages can be read."""


class Contains(Asked):
    """Which pages can be read."""


class Borrow(Asked):
    """Lease pages in the arena, and load there what slower tiers have."""


class Reserve(Asked):
    """Room in the arena for pages."""


class Fill(Asked):
    """Write pages into shared memory of the engine."""

    buffers: bytes
    """Pairs of (address, size), equally many a page."""


class Keep(Asked):
    """Store pages from shared memory of the engine."""

    buffers: bytes


class Pin(Asked):
    pinned: bool


class Return(Message):
    """The oldest of what was borrowed or reserved is not needed any more. Has no answer."""


class Publish(Message):
    """The pages of the oldest `Reserve` are written."""

    until: float


class Clear(Message):
    session: int


class Flush(Message):
    timeout: float


class Status(Message):
    """For `sgkv node status`."""


class Done(Message):
    ok: bool = True


class Found(Message):
    """Answers `Lookup`."""

    pages: int
    reason: str | None


class Flags(Message):
    """One byte a page, 0 or 1."""

    flags: bytes


class Outcome(Message):
    """What became of pages that were asked for: those in no list of `missed` are there."""

    missed: dict[str, list[int]]
    """Pages by the reason of their miss."""
    served: dict[str, int]
    """Pages by tier."""


class Lent(Outcome):
    """Answers `Borrow`."""

    places: bytes
    """Offset of each page in the arena; -1 for a miss."""


class Rooms(Message):
    """Answers `Reserve`."""

    places: bytes
    """Offset of each page's room in the arena; -1 where it need not be written, -2 where it cannot be."""


class Report(Message):
    """Answers `Status`."""

    json: bytes


Request = (
    Hello | Open | Share | Lookup | Contains | Borrow | Reserve | Fill | Keep | Pin | Return | Publish
    | Clear | Flush | Status
)  # fmt: skip
Reply = Welcome | Refused | Opened | Done | Found | Flags | Outcome | Lent | Rooms | Report


def unpacked_hashes(packed: bytes) -> list[str]:
    """The reverse of `packed_hashes`. Raises WireError for what is not whole hashes."""
    if len(packed) % _HASH:
        raise WireError(f"{len(packed)} bytes are not hashes of {_HASH} bytes")
    text = packed.hex()
    return [text[start : start + 2 * _HASH] for start in range(0, len(text), 2 * _HASH)]


def packed_span(span: Span) -> tuple[bytes, bytes | None]:
    """`hashes` and `before` of a message."""
    return packed_hashes(span.hashes), None if span.before is None else packed_hashes(span.before)


def packed_places(places: Sequence[int]) -> bytes:
    return array(_PLACE, places).tobytes()


def unpacked_places(packed: bytes) -> list[int]:
    """Raises WireError for what is not whole integers."""
    places = array(_PLACE)
    if len(packed) % places.itemsize:
        raise WireError(f"{len(packed)} bytes are not integers of {places.itemsize}")
    places.frombytes(packed)
    return places.tolist()


def packed_pairs(pairs: Sequence[tuple[int, int]]) -> bytes:
    return packed_places(list(chain.from_iterable(pairs)))


def unpacked_pairs(packed: bytes) -> list[tuple[int, int]]:
    """Raises WireError for an odd number of integers."""
    flat = unpacked_places(packed)
    if len(flat) % 2:
        raise WireError("an address without a size")
    return list(zip(flat[::2], flat[1::2], strict=True))
