"""Our keys among those of everybody else who uses the pool."""

from __future__ import annotations

import re

_PREFIX = "sgkv/"


def native_key(key: str) -> str:
    """What the pool knows a key by."""
    return _PREFIX + key


def own_key(native: str) -> str | None:
    """The key of a name in the pool; None where it is not ours."""
    return native.removeprefix(_PREFIX) if native.startswith(_PREFIX) else None


def pattern_below(prefix: str) -> str:
    """A regular expression for the pool's names of all keys that start with `prefix`."""
    return "^" + re.escape(_PREFIX + prefix)
