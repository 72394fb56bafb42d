"""What the operating system refused, said once and counted always."""

from __future__ import annotations

import logging

from sgkv.backends.disk.index import DiskIndex

log = logging.getLogger(__name__)


class FaultLog:
    """One warning for each kind of failure, so that a dead disk does not fill another one with logs."""

    def __init__(self, name: str, index: DiskIndex) -> None:
        self._name = name
        self._index = index
        self._said: set[tuple[str, int | None]] = set()

    def note(self, operation: str, error: OSError) -> None:
        self._index.count("io_errors")
        kind = (operation, error.errno)
        if kind not in self._said:
            self._said.add(kind)
            log.warning("%s: %s failed: %s (said once; see counter io_errors)", self._name, operation, error)
