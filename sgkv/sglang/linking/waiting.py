"""Requests whose pages are still being read: SGLang computes others meanwhile, and asks again.

SGLang 0.5.23 calls `UnifiedCacheLinker.load` when it has decided to run a request and knows two answers
only: all that the lookup promised (anything less is a RuntimeError in `schedule_policy.py`), or nothing,
and then it computes the prompt. While pages come from a slow tier both are bad: to wait would stop every
request of the server. But where a load-back gives None, as SGLang's own host buffers do, the scheduler
keeps the request first in its queue, and in its next step looks up again. The plugin calls this module
around the load-back of its linkers. Scheduler thread.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

WRAPPER = "sglang.srt.mem_cache.unified_cache.unified_cache_linker.UnifiedCacheLinkerWrapper"


class Waiting:
    """A linker whose loads may not be ready when they are asked for."""

    @abstractmethod
    def not_yet(self, rid: str) -> bool:
        """Whether a request should be looked up again in the next step; alike on every rank."""

    @abstractmethod
    def forget(self, rid: str) -> None:
        """The request was aborted."""


def watch() -> None:
    """Register the hooks. Raises ImportError or AttributeError where SGLang has moved what they need."""
    from sglang.srt.mem_cache.unified_cache.unified_cache_linker import UnifiedCacheLinkerWrapper
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for name in ("load_back", "release_request"):
        if not hasattr(UnifiedCacheLinkerWrapper, name):
            raise AttributeError(f"UnifiedCacheLinkerWrapper.{name}")
    HookRegistry.register(f"{WRAPPER}.load_back", _around_load_back, HookType.AROUND)
    HookRegistry.register(f"{WRAPPER}.release_request", _before_release, HookType.BEFORE)


def _around_load_back(original: Callable[..., Any], wrapper: Any, request: Any) -> Any:
    linker = wrapper.cache_linker
    if isinstance(linker, Waiting) and linker.not_yet(request.rid):
        wrapper.hit_markers.pop(request.rid, None)  # the next lookup may find less, or nothing
        return None
    return original(wrapper, request)


def _before_release(wrapper: Any, rid: str) -> None:
    if isinstance(wrapper.cache_linker, Waiting):
        wrapper.cache_linker.forget(rid)
