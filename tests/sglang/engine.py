"""SGLang's weight updates without a model.

The hooks are applied by SGLang's own registry to its own classes. What stands in for them is only
the body of each method, which needs a model on a device: it answers as SGLang would.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager as Updater
from sglang.srt.plugins.hook_registry import HookRegistry

from sgkv.sglang import plugin

UPDATES = [
    "update_weights_from_disk", "update_weights_from_distributed", "update_weights_from_tensor",
    "update_weights_from_ipc",
]  # fmt: skip
SESSIONS = ["begin_weight_update", "end_weight_update"]


class Engine:
    """SGLang's scheduler as far as weights are concerned; `on_update` runs while they change.

    `on_flush` runs while its cache is emptied.
    """

    def __init__(self) -> None:
        self.on_update: Callable[[], object] = lambda: None
        self.on_flush: Callable[[], object] = lambda: None
        self.success = True
        self.idle = True

    def hook(self, patch: pytest.MonkeyPatch) -> None:
        """Put our bodies into SGLang's classes, then the plugin's hooks around them."""
        for name in (*UPDATES, *SESSIONS):
            patch.setattr(Updater, name, lambda _self, _request: self._update())
        patch.setattr(Scheduler, "flush_cache", lambda _self, empty_cache=True: self._flush())
        plugin.install()
        HookRegistry.apply_hooks()

    def _update(self) -> SimpleNamespace:
        self.on_update()
        return SimpleNamespace(success=self.success, message="")

    def _flush(self) -> bool:
        self.on_flush()
        return self.idle

    def update(
        self, name: str = "update_weights_from_tensor", *, flush_cache: bool = True, **fields: Any
    ) -> None:
        request = SimpleNamespace(flush_cache=flush_cache, weight_version=None, **fields)
        getattr(Updater, name)(object.__new__(Updater), request)

    def session(self, name: str) -> None:
        getattr(Updater, name)(object.__new__(Updater), SimpleNamespace())

    def flush(self) -> bool:
        return Scheduler.flush_cache(object.__new__(Scheduler))
