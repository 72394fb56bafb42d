"""What the agent of a store and the controller tell each other, as MessagePack, in one kind of request.

The agent asks, the controller answers: no store listens, and orders ride on the answers.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sgkv.control.places import Device
from sgkv.control.registry import Kind
from sgkv.control.table import HASH_BYTES

MOST_HASHES = 4096
"""In one report: some milliseconds of the controller's time."""
MEDIA_TYPE = "application/msgpack"


class NamespaceFacts(msgspec.Struct, frozen=True):
    """What the digest of a namespace stands for."""

    digest: str
    tenant: str
    weights: str
    pool: str
    cell: str
    page_tokens: int
    pages_per_chunk: int


class Change(msgspec.Struct, frozen=True):
    """Blobs that came to a device, or left it."""

    namespace: str
    kind: Kind
    device: Device
    came: bool
    hashes: bytes
    """The first 16 bytes of each."""

    def split(self) -> list[bytes]:
        """Raises ValueError for a part of a hash."""
        if len(self.hashes) % HASH_BYTES:
            raise ValueError(f"{len(self.hashes)} bytes are no hashes of {HASH_BYTES} bytes each")
        return [self.hashes[at : at + HASH_BYTES] for at in range(0, len(self.hashes), HASH_BYTES)]


Doing = Literal["pin", "unpin", "clear", "prefetch", "copy", "recode"]


class Command(msgspec.Struct, frozen=True):
    """One thing for one store to do."""

    id: str
    doing: Doing
    namespace: str
    hashes: list[str] = []
    """Of the pages of a prompt from its start, 64 hex digits each; none is the whole namespace."""
    source: Device | None = None
    target: Device | None = None
    method: str = ""
    """For ``recode``: how pages are to be made smaller, as `sgkv.codecs` names it; nothing is as they
    were."""
    cancelled: bool = False


class Progress(msgspec.Struct, frozen=True):
    """How far a command is."""

    id: str
    state: Literal["running", "done", "failed", "cancelled"]
    done: int = 0
    total: int = 0
    """Pages, or blobs."""
    why: str = ""


class Report(msgspec.Struct, frozen=True):
    """From an agent, one at a time: `Registry.receive` says what the numbers mean."""

    instance: str
    epoch: int
    sequence: int
    complete: bool = True
    """False while the account of an epoch is not yet full."""
    changes: list[Change] = []
    namespaces: list[NamespaceFacts] = []
    progress: list[Progress] = []
    tiers: dict[str, Device] = {}
    """By name."""
    usage: dict[str, tuple[int, int]] = {}
    """Bytes used and bytes that there may be (0 where nobody says) of each tier."""
    hit_pages: dict[str, int] = {}
    """Since the store was opened, by tier."""
    miss_pages: dict[str, int] = {}
    """By reason."""


class Ack(msgspec.Struct, frozen=True):
    """The controller's answer."""

    verdict: Literal["apply", "repeated", "resync", "outdated"]
    commands: list[Command] = []
    """Everything this store has not told the end of, so that a lost answer loses nothing."""
