"""Which blobs of a tier a run is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from sgkv.backends.base import Backend, BlobInfo
from sgkv.prewarm.blobs import parse_key


class SelectionError(ValueError):
    """What was asked for names no blobs."""


class UnavailableError(Exception):
    """A tier does not answer, so that there is nothing to plan with."""


@dataclass(frozen=True, slots=True)
class Selection:
    """All conditions hold together; the default is everything."""

    namespaces: frozenset[str] = frozenset()
    """Digests as the server logs them at start; none is all."""
    keys: frozenset[str] | None = None
    hottest_bytes: int | None = None
    """Only the most recently used or written, up to so many bytes."""


def read_keys(path: Path) -> frozenset[str]:
    """Keys from a file of one a line; empty lines and lines that begin with ``#`` are passed over.

    Raises SelectionError for a file that cannot be read and for a line that is no key.
    """
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeError) as error:
        raise SelectionError(f"{path} cannot be read: {error}") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    for key in keys:
        if parse_key(key) is None:
            raise SelectionError(f"{path}: {key!r} is no key: write NAMESPACE/c/HH/HASH (docs/format.md)")
    return frozenset(keys)


def listed(source: Backend, selection: Selection, stopped: Callable[[], bool]) -> list[BlobInfo]:
    """The selected blobs, by the minute of their last use; what is no blob of ours is passed over.

    Within a minute the last comes first: a sequence is written and read from its head, without which
    the rest is of no use. So what is cut off at the front, or evicted first, is more tail than head.

    About 300 bytes of memory a blob. Ends early, and is of no use then, once `stopped` says so.
    Raises UnavailableError where the tier cannot be listed.
    """
    matching = takewhile(lambda _: not stopped(), _matching(source, selection))
    blobs = sorted(matching, key=_age)
    return blobs if selection.hottest_bytes is None else hottest(blobs, selection.hottest_bytes)


def hottest(blobs: list[BlobInfo], limit: int, unit: int = 1) -> list[BlobInfo]:
    """The end of a list as `listed` sorts it, of at most `limit` bytes in all.

    Sizes count in whole units of `unit` bytes.
    """
    first, room = len(blobs), limit
    while first and (charge := -(-blobs[first - 1].size // unit) * unit) <= room:
        first -= 1
        room -= charge
    return blobs[first:]


def prefixes(selection: Selection) -> list[str]:
    """What to list for it: folders of whole namespaces, as a directory bucket can list them."""
    named = set(selection.namespaces)
    if selection.keys is not None:
        of_keys = {key.partition("/")[0] for key in selection.keys}
        named = named & of_keys if named else of_keys
    return sorted(f"{name}/" for name in named) if named or selection.keys is not None else [""]


def _age(blob: BlobInfo) -> tuple[float, float, str]:
    return blob.modified // 60, -blob.modified, blob.key


def everything_in(tier: Backend, selection: Selection) -> Iterator[BlobInfo]:
    """What the folders hold that the selection looks into. Raises UnavailableError."""
    try:
        for prefix in prefixes(selection):
            yield from tier.scan(prefix)
    except OSError as error:
        raise UnavailableError(f"tier {tier.name!r} cannot be listed: {error}") from error


def _matching(source: Backend, selection: Selection) -> Iterator[BlobInfo]:
    for blob in everything_in(source, selection):
        wanted = selection.keys is None or blob.key in selection.keys
        if wanted and parse_key(blob.key) is not None:
            yield blob
