"""The data keys of one tier: made when first needed, remembered in bounds, forgotten at the end."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from sgkv.codecs.envelope import Envelope
from sgkv.codecs.keys import DataKey, KeyProvider

if TYPE_CHECKING:
    from sgkv.codecs.sealing import Seal

_MOST = 1024
"""Data keys in memory, made and opened ones each: a namespace has one a writer."""


class Locksmith:
    """Seals for blobs that are written and for blobs that are read; any thread.

    A provider may be a call over the network. It is made outside the lock: two threads that want the same
    key at the same time may both ask.
    """

    def __init__(self, provider: KeyProvider, tenant: str) -> None:
        """`tenant` is whose key wraps the data keys, where the provider tells tenants apart."""
        self._provider = provider
        self._tenant = tenant
        self._lock = threading.Lock()
        self._made: OrderedDict[str, DataKey] = OrderedDict()
        self._opened: OrderedDict[tuple[str, bytes], bytearray] = OrderedDict()

    def data_key(self, key: str) -> DataKey:
        """The data key with which blobs of `key`'s namespace are sealed now. Raises as the provider."""
        namespace = _namespace(key)
        with self._lock:
            made = self._made.get(namespace)
        if made is not None:
            return made
        new = self._provider.new(self._context(namespace))
        with self._lock:
            kept = self._made.setdefault(namespace, new)
            _bound(self._made)
        return kept

    def seal(self, key: str, envelope: Envelope, meta: bytes) -> Seal:
        """What opens the sections of a blob. Raises LockedError without its key, OSError if unknown."""
        from sgkv.codecs.sealing import Seal

        of = envelope.key_id, envelope.wrapped
        with self._lock:
            opened = self._opened.get(of)
        if opened is None:
            opened = self._provider.open(*of, self._context(_namespace(key)))
            with self._lock:
                self._opened[of] = opened
                _bound(self._opened)
        return Seal(bytes(opened), envelope.salt, key, meta)

    def close(self) -> None:
        """Forget every key."""
        with self._lock:
            keys = [made.key for made in self._made.values()] + list(self._opened.values())
            self._made.clear()
            self._opened.clear()
        for key in keys:
            key[:] = bytes(len(key))
        self._provider.close()

    def _context(self, namespace: str) -> dict[str, str]:
        return {"application": "sgkv", "tenant": self._tenant, "namespace": namespace}


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def _bound(remembered: OrderedDict) -> None:  # type: ignore[type-arg]  # of anything
    while len(remembered) > _MOST:
        remembered.popitem(last=False)
