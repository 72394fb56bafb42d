"""What can be wrong with a coded blob, a codec or a key."""

from __future__ import annotations


class CodecError(ValueError):
    """These bytes are not what a codec makes, or nobody here knows the codec."""


class DamagedError(ValueError):
    """A coded blob that is not what a writer made."""


class SealError(ValueError):
    """A section that does not open: changed, moved, or sealed with another key."""


class KeyConfigError(ValueError):
    """Keys that cannot be used as they are configured; the message names what to change."""


class LockedError(Exception):
    """Nobody here has the key that this was wrapped with."""
