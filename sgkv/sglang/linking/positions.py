"""Where in its sequence a page lies, which SGLang 0.5.23 does not tell a linker.

It passes the hashes of the pages that it asks about or offers, and not of those before them; without
these nobody can say where chunks begin. The plugin calls this module around the two places where the
tree is at hand (`UnifiedCacheLinkerWrapper.match` and `_offload_node`). Scheduler thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WRAPPER = "sglang.srt.mem_cache.unified_cache.unified_cache_linker.UnifiedCacheLinkerWrapper"


class Positions:
    """The hashes before the pages of the call that is under way; None where nobody said."""

    def __init__(self) -> None:
        self.before: Sequence[str] | None = None

    def take(self) -> Sequence[str] | None:
        """What was said for this call; the next one has to say it again."""
        before, self.before = self.before, None
        return before


def watch() -> None:
    """Register the hooks. Raises ImportError or AttributeError where SGLang has moved what they need."""
    from sglang.srt.mem_cache.unified_cache.unified_cache_linker import UnifiedCacheLinkerWrapper
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for owner, name in (
        (UnifiedCacheLinkerWrapper, "match"),
        (UnifiedCacheLinkerWrapper, "_offload_node"),
        (UnifiedRadixCache, "get_prefix_hash_values"),
    ):
        if not hasattr(owner, name):
            raise AttributeError(f"{owner.__name__}.{name}")
    HookRegistry.register(f"{WRAPPER}.match", _before_match, HookType.BEFORE)
    HookRegistry.register(f"{WRAPPER}._offload_node", _before_offload, HookType.BEFORE)


def _before_match(wrapper: Any, _key: Any, _request: Any, result: Any, **_kwargs: Any) -> None:
    positions = getattr(wrapper.cache_linker, "positions", None)
    if isinstance(positions, Positions):
        tree = wrapper.cache.tree_core
        node = result.last_device_node
        deep = result.device_prefix_len > 0
        positions.before = [*tree.get_prefix_hash_values(node), *tree.get_hash_values(node)] if deep else []


def _before_offload(wrapper: Any, node: Any, _transfers: Any, **_kwargs: Any) -> None:
    positions = getattr(wrapper.cache_linker, "positions", None)
    if isinstance(positions, Positions):
        positions.before = wrapper.cache.tree_core.get_prefix_hash_values(node)
