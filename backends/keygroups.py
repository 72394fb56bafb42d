"""Keys by their first path segment, so that a whole namespace is found without a full walk."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

Watcher = Callable[[str, bool], object]
"""Told of a key, and whether it came or went, under the lock of an index: it neither waits nor raises."""


def group_of(key: str) -> str:
    """The group that a key belongs to: what stands before the first ``/``."""
    return key.partition("/")[0]


class KeyGroups:
    """A set of keys, grouped by what stands before the first ``/``.

    Not thread-safe: kept next to an index, under the index's lock.
    """

    def __init__(self) -> None:
        self._groups: dict[str, set[str]] = {}
        self._watcher: Watcher | None = None

    def add(self, key: str, name: str = "") -> None:
        """`name` is the key's `group_of`, from a caller who has it."""
        name = name or group_of(key)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = set()
        group.add(key)
        if self._watcher is not None:
            self._watcher(key, True)

    def discard(self, key: str) -> None:
        name = group_of(key)
        group = self._groups.get(name)
        if group is None:
            return
        group.discard(key)
        if not group:
            del self._groups[name]
        if self._watcher is not None:
            self._watcher(key, False)

    def watch(self, watcher: Watcher | None) -> list[str]:
        """Tell `watcher`, and nobody else, of every change from now on; all keys there are now."""
        self._watcher = watcher
        return list(chain.from_iterable(self._groups.values()))

    def under(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`; all of them for an empty one."""
        name, slash, rest = prefix.partition("/")
        if not slash:
            return [key for group in self._groups.values() for key in group if key.startswith(prefix)]
        group = self._groups.get(name, set())
        return [key for key in group if key.startswith(prefix)] if rest else list(group)


def require_folder_prefix(prefix: str) -> None:
    """Raises ValueError unless `prefix` names a folder of keys, as `delete_prefix` wants it."""
    if len(prefix) < 2 or not prefix.endswith("/"):
        raise ValueError(f"prefix must be non-empty and end in '/', got {prefix!r}")
