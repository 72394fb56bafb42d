"""The data keys of one tier: made when first needed, remembered in bounds, forgotten at the end."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from sgkv.codecs.envelope import Envelope
from sgkv.codecs.errors import LockedError
from sgkv.codecs.keys import DataKey, KeyProvider

if TYPE_CHECKING:
    from sgkv.codecs.sealing import Seal

_MOST = 1024
"""Data keys in memory, made and opened ones each: a namespace has one a writer."""
_REFUSED_SECONDS = 30.0
"""For which a key that could not be had is not asked for again: a call over the network for each blob."""


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
        self._refused: dict[tuple[str, bytes], float] = {}

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
            if kept is new:
                self._opened[new.key_id, new.wrapped] = bytearray(new.key)
            else:
                _erase(new.key)
            self._bound()
        return kept

    def seal(self, key: str, envelope: Envelope, meta: bytes) -> Seal:
        """What opens the sections of a blob. Raises LockedError without its key, OSError if unknown."""
        from sgkv.codecs.sealing import Seal

        of = envelope.key_id, envelope.wrapped
        data_key = self._remembered(of) or self._asked_for(of, _namespace(key))
        return Seal(data_key, envelope.salt, key, meta)

    def close(self) -> None:
        """Forget every key."""
        with self._lock:
            keys = [made.key for made in self._made.values()] + list(self._opened.values())
            self._made.clear()
            self._opened.clear()
            for key in keys:
                _erase(key)
        self._provider.close()

    def _remembered(self, of: tuple[str, bytes]) -> bytes | None:
        """A copy, made while nobody can erase it. Raises LockedError where it was refused a moment ago."""
        with self._lock:
            if time.monotonic() < self._refused.get(of, 0.0):
                raise LockedError(f"the key {of[0]!r} was refused a moment ago")
            opened = self._opened.get(of)
            if opened is None:
                return None
            self._opened.move_to_end(of)
            return bytes(opened)

    def _asked_for(self, of: tuple[str, bytes], namespace: str) -> bytes:
        try:
            opened = self._provider.open(*of, self._context(namespace))
        except LockedError:
            with self._lock:
                if len(self._refused) >= _MOST:
                    self._refused.clear()
                self._refused[of] = time.monotonic() + _REFUSED_SECONDS
            raise
        data_key = bytes(opened)
        with self._lock:
            self._opened[of] = opened
            self._bound()
        return data_key

    def _bound(self) -> None:
        while len(self._made) > _MOST:
            _erase(self._made.popitem(last=False)[1].key)
        while len(self._opened) > _MOST:
            _erase(self._opened.popitem(last=False)[1])

    def _context(self, namespace: str) -> dict[str, str]:
        return {"application": "sgkv", "tenant": self._tenant, "namespace": namespace}


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def _erase(key: bytearray) -> None:
    key[:] = bytes(len(key))
