"""SGLang plugin: one flag to turn sgkv on, and weight updates that cannot leave stale KV behind.

SGLang 0.5.23 calls `install` early in every process (entry point group ``sglang.srt.plugins``). Where
its insides have moved, the flag is not offered, one message names the explicit form, and the server
starts as if sgkv were not installed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import typing
import uuid
from collections.abc import Callable
from typing import Any

from sgkv.sglang.launch import ATTACHED, LAUNCH_ID, expand

logger = logging.getLogger("sgkv")

FLAG = "sgkv"
_RESOLVE = "sglang.srt.server_args.ServerArgs.resolve_once"
_UPDATER = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"
_UPDATES = (
    "update_weights_from_disk",
    "update_weights_from_distributed",
    "update_weights_from_tensor",
    "update_weights_from_ipc",
)
_BEGIN, _END = "begin_weight_update", "end_weight_update"
_FLUSH = "sglang.srt.managers.scheduler.Scheduler.flush_cache"
_DECODE_STORES = "disaggregation_decode_enable_offload_kvcache"
_SCHEDULER = "sglang.srt.managers.scheduler"
_MOVED = (
    "sgkv: this version of SGLang (%s) has moved what the sgkv flag needs (%s). Use the explicit form: "
    "--enable-hierarchical-cache --hicache-storage-backend dynamic --hicache-storage-backend-extra-config "
    "with the JSON that `sgkv sglang-args --mode dynamic` prints. %s"
)


_watching = False


def watches_weights() -> bool:
    """Whether updates of the weights are seen in this process."""
    return _watching


def install() -> None:
    """Entry point. Registers hooks and returns; never raises."""
    global _watching  # noqa: PLW0603 - plugins are loaded once a process
    import sglang

    try:
        _offer_flag()
        if _SCHEDULER in sys.modules:  # importing it elsewhere would pull it into the CLI's process
            _watch_weights()
            _watching = True
            _watch_positions()
    except (ImportError, AttributeError, KeyError, TypeError) as error:
        version = getattr(sglang, "__version__", "unknown")
        logger.error(_MOVED, version, error, "Do not update weights at runtime with it.")  # noqa: TRY400


def _offer_flag() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.server_args import ServerArgs

    if not hasattr(ServerArgs, "resolve_once"):
        raise AttributeError("ServerArgs.resolve_once")
    # `Arg` is frozen, but its list of choices is the one argparse will read.
    metadata = typing.get_type_hints(ServerArgs, include_extras=True)["hicache_storage_backend"].__metadata__
    choices = next((m.choices for m in metadata if getattr(m, "choices", None)), None)
    if choices is None:
        raise AttributeError("the choices of --hicache-storage-backend")
    if FLAG not in choices:
        choices.append(FLAG)
    # `__post_init__` hooks never fire (msgspec binds it at class creation); this one runs for the
    # command line and for Engine alike, and is the last moment at which arguments may change.
    HookRegistry.register(_RESOLVE, _before_resolve, HookType.BEFORE)


def _before_resolve(self: Any, *_args: Any, **_kwargs: Any) -> None:
    if getattr(self, "_resolution_finished", False):
        return
    # Never one that was inherited: an engine started before in this process, or in the one that started
    # it, may have had other weights pushed into it.
    os.environ[LAUNCH_ID] = uuid.uuid4().hex
    if self.hicache_storage_backend != FLAG:
        return
    from sgkv.config import load, resolve  # only a server that uses sgkv pays for pydantic

    extra, said = expand(self.hicache_storage_backend_extra_config)
    config = load(extra, origin="--hicache-storage-backend-extra-config").config
    resolve(config)  # refuse now, not in a rank
    if config.mode == "attach" and not ATTACHED.keys() & extra.keys():
        extra |= ATTACHED
        said.append("host pools in shared memory")
    self.hicache_storage_backend = "dynamic"
    self.hicache_storage_backend_extra_config = json.dumps(extra)
    # A decode server that stores what it computes has no host cache, and SGLang refuses one there.
    self.enable_hierarchical_cache = not getattr(self, _DECODE_STORES, False)
    if self.page_size in (None, 1):
        self.page_size = 64
        said.append("page size 64 (one object a token would be slower than recomputing)")
    logger.warning("sgkv: --hicache-storage-backend sgkv set %s", ", ".join(said))


def _watch_weights() -> None:
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.managers.scheduler_components.weight_updater import (
        SchedulerWeightUpdaterManager,
    )
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    missing = [name for name in (*_UPDATES, _BEGIN, _END) if not hasattr(SchedulerWeightUpdaterManager, name)]
    if missing or not hasattr(Scheduler, "flush_cache"):
        raise AttributeError(", ".join(missing) or "Scheduler.flush_cache")
    for name in _UPDATES:
        HookRegistry.register(f"{_UPDATER}.{name}", _around_update, HookType.AROUND)
    HookRegistry.register(f"{_UPDATER}.{_BEGIN}", _before_session, HookType.BEFORE)
    HookRegistry.register(f"{_UPDATER}.{_END}", _after_session, HookType.AFTER)
    HookRegistry.register(_FLUSH, _around_flush, HookType.AROUND)


def _watch_positions() -> None:
    """What SGLang does not tell a linker, and a decode server's store, and cannot be told by them."""
    from sgkv.sglang import decoding
    from sgkv.sglang.linking import positions, waiting

    for watch, without in (
        (decoding.watch, "a decode server stores pages one by one, not in chunks"),
        (positions.watch, "a linker stores pages one by one, not in chunks"),
        (waiting.watch, "a linker stops the scheduler while it reads from a slow tier"),
    ):
        try:
            watch()
        except (ImportError, AttributeError) as error:
            logger.warning("sgkv: SGLang has moved %s: %s", error, without)


def _around_update(original: Callable[..., Any], self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
    """Scheduler thread. Any answer that is not a clean success leaves the store suspended."""
    from sgkv.sglang.lifecycle import weights_change

    with weights_change() as change:
        answer = original(self, request, *args, **kwargs)
        change.weight_version = getattr(request, "weight_version", None)
        change.succeeded = bool(getattr(answer, "success", False))
        if change.succeeded:
            change.model_path = getattr(request, "model_path", None)
            change.flushed = bool(getattr(request, "flush_cache", False))
        return answer


def _before_session(*_args: Any, **_kwargs: Any) -> None:
    from sgkv.sglang.lifecycle import session_began

    session_began()


def _after_session(answer: Any, *_args: Any, **_kwargs: Any) -> None:
    """Only a session that ended well ends for us; after anything else the store stays suspended."""
    if getattr(answer, "success", False):
        from sgkv.sglang.lifecycle import session_ended

        session_ended()


def _around_flush(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    from sgkv.sglang.lifecycle import engine_flush

    with engine_flush() as flush:
        result = original(*args, **kwargs)
        flush.done = bool(result)
        return result
