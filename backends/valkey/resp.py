"""The words of RESP2: what is said, and what an answer begins with.

"Serialization protocol specification", valkey.io. Lengths come from the other side: each is checked
against what was asked for before anything is read by it.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from sgkv.backends.remote.endings import Unreachable

_NUMBER = re.compile(rb"-?[0-9]{1,18}")


class Refusal(NamedTuple):
    """An error as the server says it."""

    code: str
    """Its first word, such as ``OOM`` or ``MOVED``."""
    text: str


class Bulk(NamedTuple):
    """So many bytes follow, and a line's end."""

    size: int


class Many(NamedTuple):
    """So many answers follow."""

    size: int


Answer: TypeAlias = str | int | Refusal | Bulk | Many | None
"""None is what the protocol calls nil."""


def command(*words: bytes) -> bytes:
    """A request."""
    return b"*%d\r\n%b" % (len(words), b"".join(map(bulk, words)))


def bulk(word: bytes) -> bytes:
    """One word of a request."""
    return b"$%d\r\n%b\r\n" % (len(word), word)


def parse(line: bytes) -> Answer:
    """What a line says, its end cut off. Raises Unreachable where that is not RESP2."""
    kind, rest = line[:1], line[1:]
    if kind == b"+":
        return rest.decode("latin-1")
    if kind == b"-":
        text = rest.decode("latin-1")
        return Refusal(text.partition(" ")[0], text)
    if kind not in (b":", b"$", b"*") or not _NUMBER.fullmatch(rest):
        raise Unreachable("the answer is not RESP")
    number = int(rest)
    if kind == b":":
        return number
    if number < -1:
        raise Unreachable("an answer of negative length")
    if number == -1:
        return None
    return Bulk(number) if kind == b"$" else Many(number)
