"""What keys are called on a server."""

from __future__ import annotations

from dataclasses import dataclass

_ODD = "surrogateescape"
"""Keys of others need not be text; they come and go as the bytes they are."""


@dataclass(frozen=True, slots=True)
class Names:
    """Keys of blobs behind a prefix."""

    prefix: str

    def of(self, key: str) -> bytes:
        """The name of a key, or the beginning of names where `key` is the beginning of keys."""
        return (self.prefix + key).encode(errors=_ODD)

    def key(self, name: bytes) -> str:
        """The key of a name, which has the prefix."""
        return name.decode(errors=_ODD)[len(self.prefix) :]
