"""How far a call may overrun its deadline when a tier hangs.

The machine is shared, so the median is judged here, with slack; `sgkv bench trouble` judges the 99th
percentile on a quiet one.
"""

import statistics
import time
from collections.abc import Callable

import pytest

from tests.faults.calls import KEYS, PAGES
from tests.faults.conftest import Stall
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, read, write

pytestmark = pytest.mark.slow

CALLS = 200
DEADLINE = 0.01
SLACK = 0.01


@pytest.mark.parametrize("call", ["exists", "get"])
@pytest.mark.parametrize("tiers", ["disk", "cpu+disk"])
def test_the_deadline_is_the_time_of_a_call(
    rig: Rig, stalls: Stall, call: str, tiers: str, record_property: Callable[[str, object], None]
) -> None:
    hanging = stalls(DEADLINE)
    rig.tiers = tiers
    kv = make.mha()
    engine = {"exists_deadline": DEADLINE, "get_deadline": DEADLINE, "set_deadline": 30}
    backend = rig.backend(kv, engine=engine)
    hanging[0].stalled = True
    ask = {
        "exists": lambda: backend.batch_exists(KEYS, after()),
        "get": lambda: read(backend, kv, KEYS, range(PAGES)),
    }
    took = []
    for _ in range(CALLS):
        began = time.perf_counter()
        found = ask[call]()
        took.append(time.perf_counter() - began)
        hanging[0].let_go()
        assert found in (0, [False] * PAGES)
    p99 = statistics.quantiles(took, n=100)[98]
    record_property("p99_ms", round(p99 * 1e3, 2))
    assert statistics.median(took) < DEADLINE + SLACK


def test_while_the_breaker_is_open_a_call_costs_nothing_to_speak_of(disk_rig: Rig) -> None:
    """Half-open, one call in each pause pays the deadline and the others still do not."""
    kv = make.mha()
    assert all(write(disk_rig.backend(kv), kv, KEYS, range(PAGES)))
    hanging = {
        "type": "disk", "path": str(disk_rig.folder), "min_free": 0, "faults": {"hang": 1.0},
        "deadlines": {"contains": 0.1, "get": 0.1, "put": 0.1},
        "breaker": {"failures": 2, "cooldown": "50ms", "max_cooldown": "50ms"},
    }  # fmt: skip
    backend = disk_rig.backend(kv, tiers=[hanging])
    took = []
    ends = time.monotonic() + 1.5
    while time.monotonic() < ends:
        began = time.perf_counter()
        backend.batch_exists(KEYS, after())
        took.append(time.perf_counter() - began)
    backend.store.tiers[0].backend.inner.release()
    assert statistics.median(took) < 0.01
    assert sum(seconds > 0.05 for seconds in took) <= 12
