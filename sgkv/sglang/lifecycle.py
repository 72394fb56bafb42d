"""Keeping stored KV apart from weights it was not computed with.

SGLang 0.5.23 tells a storage backend nothing when the weights of a running server change, and would
serve the old weights' KV from storage. The plugin hooks the updates and calls `weights_change` around
them, `session_began` and `session_ended` where SGLang opens and closes its sessions of updates, and
`engine_flush` around a flush; all act on every backend of this process. Scheduler thread.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sgkv.sglang.naming import updated_epoch
from sgkv.sglang.plugin import watches_weights

if TYPE_CHECKING:
    from sgkv.sglang.shelves import Shelves

logger = logging.getLogger("sgkv")


class Attached(Protocol):
    """What is attached to SGLang and keeps its KV."""

    @property
    def shelves(self) -> Shelves[Any]: ...


@dataclass(slots=True)
class _State:
    updates: int = 0
    updating: bool = False
    session: bool = False
    """SGLang holds the weights open for updates: what it computes belongs to no weights."""
    session_updated: bool = False
    awaiting_flush: bool = False
    epoch: str = ""

    @property
    def settled(self) -> bool:
        """The weights are whole, and SGLang's own cache holds nothing of others."""
        return not (self.updating or self.session or self.awaiting_flush)


_state = _State()
_backends: weakref.WeakSet[Attached] = weakref.WeakSet()


@dataclass(slots=True)
class WeightsChange:
    """Filled in by the hook once SGLang has answered."""

    model_path: str | None = None
    """Set when the weights came from disk."""
    weight_version: str | None = None
    succeeded: bool = False
    flushed: bool = False
    """SGLang dropped its own cache of the old weights' KV."""


def register(backend: Attached) -> None:
    """A backend was attached: it starts in the epoch this process is in."""
    _backends.add(backend)
    if not watches_weights():
        logger.warning(
            "sgkv: SGLang has not loaded our plugin into this process (is sgkv installed, and allowed by "
            "SGLANG_PLUGINS?), so an update of the weights would go unnoticed and KV of the old ones be "
            "served. Do not update weights at runtime."
        )
    if _state.epoch:
        backend.shelves.enter_epoch(_state.epoch)
    if not _state.settled:
        backend.shelves.suspend()


def unregister(backend: Attached) -> None:
    _backends.discard(backend)


@contextmanager
def weights_change() -> Iterator[WeightsChange]:
    """Around one update. Suspended from before it, because backups of old pages may still be queued;
    resumed after it in a new epoch, or only with the next flush if this one flushed nothing.
    """
    change = WeightsChange()
    _state.updating = True
    _suspend()
    try:
        yield change
    finally:
        _state.updating = False
        _state.session_updated |= _state.session and change.succeeded
        _state.updates += 1
        _state.epoch = updated_epoch(change.model_path, change.weight_version, _state.updates)
        _state.awaiting_flush = not change.flushed
        for backend in list(_backends):
            backend.shelves.enter_epoch(_state.epoch)
        logger.info("sgkv: weights changed; epoch is now %r", _state.epoch)
        _settle()


def session_began() -> None:
    """From now on the weights may change in parts, or without any call (P2P, RDMA)."""
    _state.session = True
    _suspend()


def session_ended() -> None:
    """The weights are whole again; changed without a call if none succeeded, as SGLang takes it too."""
    if _state.session and not _state.session_updated:
        with weights_change():
            pass
    _state.session = _state.session_updated = False
    _settle()


@dataclass(slots=True)
class Flush:
    """Filled in by the hook once SGLang has answered."""

    done: bool = False
    """SGLang's own cache is empty now."""


@contextmanager
def engine_flush() -> Iterator[Flush]:
    """Around one flush. Suspended meanwhile: SGLang waits ten seconds for its storage threads and then
    gives up with an exception, and a backup of many batches to a slow tier would take longer.
    """
    flush = Flush()
    if _state.updating:  # which is suspended, and ends in its own way
        yield flush
        return
    waited = _state.awaiting_flush
    _suspend()
    try:
        yield flush
    finally:
        _state.awaiting_flush = waited and not flush.done
        _settle()


def _suspend() -> None:
    for backend in list(_backends):
        backend.shelves.suspend()


def _settle() -> None:
    if _state.settled:
        for backend in list(_backends):
            backend.shelves.resume()
    elif not _state.session:
        logger.warning(
            "sgkv: the weights changed but SGLang's own cache was not flushed, so nothing is stored or "
            "served until it is: POST /flush_cache."
        )
