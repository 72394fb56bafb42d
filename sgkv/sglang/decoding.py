"""Where in its sequence a page lies that a decode server stores, which SGLang 0.5.23 does not tell.

With ``--disaggregation-decode-enable-offload-kvcache`` a decode server writes the pages of its answer as they
fill, one a call, and passes no hashes of those before. Without these nobody can say where chunks begin, and
pages would be stored one by one. `DecodeKVCacheOffloadManager` computes the hashes of a request from its
beginning on; the plugin calls this module where it does. Scheduler thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

_MANAGER = "sglang.srt.disaggregation.decode_kvcache_offload_manager.DecodeKVCacheOffloadManager"
_CONTROLLER = "sglang.srt.managers.cache_controller.HiCacheController"


class Chains:
    """The pages of each request that were hashed up to now, and those that are about to be written."""

    def __init__(self) -> None:
        self._chains: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()
        self._first: str | None = None
        self._before: list[str] = []

    def grow(self, request: Any, prior: str | None, hashes: Sequence[str]) -> None:
        """Note pages that follow `prior`; without one they are the request's first."""
        chain = self._chains.setdefault(request, [])
        if not prior:
            chain.clear()
        self._first, self._before = next(iter(hashes), None), list(chain)
        chain.extend(hashes)

    def before(self, hashes: Sequence[str]) -> list[str] | None:
        """The pages before `hashes`, where they were hashed just now; asked for once."""
        if not hashes or hashes[0] != self._first:
            return None
        self._first = None
        return self._before


_chains = Chains()


def watch() -> None:
    """Register the hooks. Raises ImportError or AttributeError where SGLang has moved what they need."""
    from sglang.srt.disaggregation.decode_kvcache_offload_manager import DecodeKVCacheOffloadManager
    from sglang.srt.managers.cache_controller import HiCacheController
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for owner, name in (
        (DecodeKVCacheOffloadManager, "_compute_prefix_hash"),
        (HiCacheController, "write_storage"),
    ):
        if not hasattr(owner, name):
            raise AttributeError(f"{owner.__name__}.{name}")
    HookRegistry.register(f"{_MANAGER}._compute_prefix_hash", _after_hashing, HookType.AFTER)
    HookRegistry.register(f"{_CONTROLLER}.write_storage", _before_write, HookType.BEFORE)


def _after_hashing(
    hashes: Sequence[str], _manager: Any, request: Any, _tokens: Any, prior: Any = None
) -> None:
    _chains.grow(request, prior, hashes)


def _before_write(
    controller: Any,
    host_indices: Any,
    token_ids: Any,
    hash_value: Any = None,
    prefix_keys: Any = None,
    **options: Any,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if prefix_keys is None and hash_value:
        prefix_keys = _chains.before(hash_value)
    return (controller, host_indices, token_ids, hash_value, prefix_keys), options
