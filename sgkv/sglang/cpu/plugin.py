"""What SGLang's own plugin hook runs in each process before anything else of SGLang."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from sgkv.sglang.cpu.attention import absorb_mla, read_windows_where_they_are
from sgkv.sglang.cpu.environment import CPU_ENGINE

_RESERVED = 512 << 20


def install() -> None:
    """Entry point ``sgkv_cpu`` of group ``sglang.srt.plugins``; does nothing without CPU mode.

    Idempotent. Imports SGLang's host pools, so it must not run at `import sgkv`.
    """
    if os.environ.get(CPU_ENGINE) != "1":
        return
    _leave_host_pools_unpinned()
    reserve_little_memory()
    _provide_row_copies()
    absorb_mla()
    read_windows_where_they_are()
    if "sglang.srt.managers.scheduler" in sys.modules:
        _send_from_plain_indices()


def _leave_host_pools_unpinned() -> None:
    """Pinning is the pools' default and goes through CUDA; here there is nothing to pin for."""
    from sglang.srt.mem_cache.pool_host.base import HostKVCache
    from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost

    for pool in (HostKVCache, MambaPoolHost):
        if not hasattr(pool.__init__, "__wrapped__"):
            pool.__init__ = _unpinned(pool.__init__)


def reserve_little_memory() -> None:
    """SGLang leaves 10 GiB to others, and makes no pool where less is free: more than a laptop has."""
    from sglang.srt.mem_cache.pool_host import base

    base.HICACHE_HOST_MEMORY_RESERVE_BYTES = _RESERVED


def _send_from_plain_indices() -> None:
    """A prefill server would hand page indices to its sender in pinned memory, with a CUDA event."""
    from sglang.srt.disaggregation.mooncake.conn import MooncakeKVSender

    MooncakeKVSender.supports_host_tensor_indices = False


def _unpinned(init: Any) -> Any:
    @functools.wraps(init)
    def unpinned(self: object, *args: object, **kwargs: object) -> None:
        init(self, *args, **{**kwargs, "pin_memory": False})

    return unpinned


def _provide_row_copies() -> None:
    """SGLang binds the copy operations in each pool module for CUDA, HIP and XPU only."""
    from sglang.srt.mem_cache.pool_host import mamba, mha, mla

    from sgkv.sglang.cpu import copies, copies_kv

    operations = {**vars(copies), **vars(copies_kv)}
    for name in filter(lambda name: name.startswith("transfer_kv_"), operations):
        for module in (mha, mla, mamba):
            if not hasattr(module, name):
                setattr(module, name, operations[name])
