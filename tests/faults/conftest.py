"""Backends as SGLang opens them, over tiers that are made to fail."""

from collections.abc import Callable, Iterator

import pytest

from sgkv.backends.base import Backend
from sgkv.backends.breaker import BreakerPolicy
from sgkv.backends.guard import Guarded
from tests.faults.stalls import Stalled
from tests.sglang.conftest import disk_rig, fresh_process, one_torch_thread, rig

__all__ = ["disk_rig", "fresh_process", "one_torch_thread", "rig", "stalls"]

DEADLINE = 0.1
NEVER = BreakerPolicy(consecutive_failures=10_000, failure_share=1.0, window=10_000)

Stall = Callable[..., list[Stalled]]


@pytest.fixture
def stalls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stall]:
    """Called before a backend is opened: each of its lower tiers then hangs when its `stalled` says so.

    The guard is the one every tier has, with a breaker that never opens, so that each call is waited for.
    """
    made: list[Stalled] = []

    def install(deadline: float = DEADLINE, put_deadline: float | None = None) -> list[Stalled]:
        def wrap(backend: Backend, *_: object) -> Backend:
            made.append(Stalled(backend))
            return Guarded(
                made[-1],
                contains_deadline=deadline,
                get_deadline=deadline,
                put_deadline=put_deadline or deadline,
                breaker=NEVER,
            )

        monkeypatch.setattr("sgkv.store.build.wrap", wrap)
        return made

    yield install
    for stalled in made:
        stalled.stop()
