"""An SGLang whose insides have moved: one message names the explicit form, and the server starts.

The moves are simulated by taking away what the plugin looks for; such a version does not exist here.
"""

import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from sglang.srt.managers import scheduler
from sglang.srt.managers.scheduler_components import weight_updater
from sglang.srt.plugins.hook_registry import HookRegistry
from sglang.srt.server_args import ServerArgs

from sgkv.sglang import plugin
from tests.sglang.conftest import own_hooks


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with own_hooks() as patch:
        yield patch


MOVES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "resolution": lambda patch: patch.delattr(ServerArgs, "resolve_once"),
    "the hook registry": lambda patch: patch.setitem(sys.modules, "sglang.srt.plugins.hook_registry", None),
    "the arguments": lambda patch: patch.setitem(sys.modules, "sglang.srt.server_args", None),
    "the updater": lambda patch: patch.delattr(weight_updater, "SchedulerWeightUpdaterManager"),
    "the updater's module": lambda patch: patch.setitem(sys.modules, weight_updater.__name__, None),
    "one way to update": lambda patch: patch.delattr(
        weight_updater.SchedulerWeightUpdaterManager, "update_weights_from_ipc"
    ),
    "the end of a session": lambda patch: patch.delattr(
        weight_updater.SchedulerWeightUpdaterManager, "end_weight_update"
    ),
    "the flush": lambda patch: patch.delattr(scheduler.Scheduler, "flush_cache"),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_what_moved_is_said_once_with_the_way_out(
    patch: pytest.MonkeyPatch, move: Callable[[pytest.MonkeyPatch], None], caplog: pytest.LogCaptureFixture
) -> None:
    move(patch)
    plugin.install()
    (record,) = [record for record in caplog.records if record.name == "sgkv"]
    assert record.levelno == logging.ERROR
    for word in ("--hicache-storage-backend dynamic", "sgkv sglang-args", "weights"):
        assert word in record.getMessage()
    assert record.exc_info is None


def test_no_hook_is_left_half_done_where_updates_cannot_be_watched(patch: pytest.MonkeyPatch) -> None:
    """Either all of them are watched or none: a gap would look like protection."""
    MOVES["one way to update"](patch)
    plugin.install()
    assert not any("Updater" in target or "flush_cache" in target for target in HookRegistry._hooks)


def test_outside_a_scheduler_process_the_scheduler_is_not_imported(patch: pytest.MonkeyPatch) -> None:
    """The command line's process must stay light."""
    patch.delitem(sys.modules, scheduler.__name__)
    plugin.install()
    assert scheduler.__name__ not in sys.modules
    assert list(HookRegistry._hooks) == ["sglang.srt.server_args.ServerArgs.resolve_once"]
