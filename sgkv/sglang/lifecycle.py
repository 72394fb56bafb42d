"""Keeping stored KV apart from weights it was not computed with.

SGLang 0.5.23 tells a storage backend nothing when the weights of a running server change, and would
serve the old weights' KV from storage. The plugin hooks the updates and calls `weights_change` around
them and `engine_flushed` after a flush; both act on every backend of this process. Scheduler thread.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgkv.sglang.naming import updated_epoch

if TYPE_CHECKING:
    from sgkv.sglang.hicache import SgkvHiCache

logger = logging.getLogger("sgkv")


@dataclass(slots=True)
class _State:
    updates: int = 0
    updating: bool = False
    awaiting_flush: bool = False
    epoch: str = ""


_state = _State()
_backends: weakref.WeakSet[SgkvHiCache] = weakref.WeakSet()


@dataclass(slots=True)
class WeightsChange:
    """Filled in by the hook once SGLang has answered."""

    model_path: str | None = None
    """Set when the weights came from disk."""
    weight_version: str | None = None
    flushed: bool = False
    """SGLang dropped its own cache of the old weights' KV."""


def register(backend: SgkvHiCache) -> None:
    """A backend was attached: it starts in the epoch this process is in."""
    _backends.add(backend)
    if _state.epoch:
        backend.shelves.enter_epoch(_state.epoch)
    if _state.awaiting_flush:
        backend.shelves.suspend()


def unregister(backend: SgkvHiCache) -> None:
    _backends.discard(backend)


@contextmanager
def weights_change() -> Iterator[WeightsChange]:
    """Around one update. Suspended from before it, because backups of old pages may still be queued;
    resumed after it in a new epoch, or only with the next flush if this one flushed nothing.
    """
    change = WeightsChange()
    _state.updating = True
    for backend in list(_backends):
        backend.shelves.suspend()
    try:
        yield change
    finally:
        _state.updating = False
        _state.updates += 1
        _state.epoch = updated_epoch(change.model_path, change.weight_version, _state.updates)
        _state.awaiting_flush = not change.flushed
        for backend in list(_backends):
            backend.shelves.enter_epoch(_state.epoch)
        logger.info("sgkv: weights changed; epoch is now %r", _state.epoch)
        if change.flushed:
            _resume()
        else:
            logger.warning(
                "sgkv: the weights changed but SGLang's own cache was not flushed, so nothing is stored or "
                "served until it is: POST /flush_cache."
            )


def engine_flushed() -> None:
    """SGLang's own cache is empty now."""
    if _state.awaiting_flush and not _state.updating:
        _state.awaiting_flush = False
        _resume()


def _resume() -> None:
    for backend in list(_backends):
        backend.shelves.resume()
