"""How long an engine waits for a disk that hangs: its own deadline, and how much more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sgkv.backends.breaker import BreakerPolicy
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from sgkv.backends.guard import Guarded
from sgkv.backends.simulated import Simulated
from sgkv.bench.contest import fresh_keys
from sgkv.bench.effort import Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.timing import interleave
from sgkv.chunk.layout import Order, PageLayout
from sgkv.identity import Namespace
from sgkv.store.session import Session
from sgkv.store.span import Span
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier

_DEADLINE = 0.05
_HANG = 4 * _DEADLINE
_PAGES = 128
_LAYOUT = PageLayout(Order.LAYER, "bfloat16", 64, 2, 2, (128, 128))
_NAMESPACE = Namespace(
    tenant="bench", weights="bench", epoch="", architecture="bench", numerics="exact", kv_dtype="bfloat16",
    page_tokens=64, chunk_tokens=256, pool="kv", cell="tp 0/1", geometry=_LAYOUT.geometry,
)  # fmt: skip
_BAR = Bar("value", "<=", 10, "ms beyond the deadline")
_PATIENT = BreakerPolicy(consecutive_failures=1 << 30, failure_share=1.0, window=1 << 20)
"""Never opens: behind an open breaker no call waits, and there is nothing to measure."""


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """The 99th percentile of a call of 128 pages, less its deadline of 50 ms, in ms.

    ``bare_wait_p99`` is what the machine itself adds to a wait of the same length, in the same minute.
    """
    calls = effort.times(25)
    span = Span(fresh_keys(_PAGES))
    pages = [[memoryview(bytearray(_LAYOUT.page_bytes))] for _ in range(_PAGES)]
    with _hanging(scratch.disk()) as session:
        cases: dict[str, Callable[[], object]] = {
            "bare_wait_p99": lambda: threading.Event().wait(_DEADLINE),
            "exists_p99_hung_disk": lambda: session.lookup(span, Deadline(_DEADLINE)),
            "get_p99_hung_disk": lambda: session.get(span, pages, Deadline(_DEADLINE)),
        }
        series = interleave(cases, calls)
    for case, costs in series.items():
        beyond = costs.p99 - _DEADLINE
        yield Record("trouble", case, beyond * 1e3, "ms", bars=() if case == "bare_wait_p99" else (_BAR,))


@contextmanager
def _hanging(folder: Path) -> Iterator[Session]:
    disk = Simulated(DiskBackend(folder, 1 << 30, min_free_bytes=0), latency_s=_HANG)
    guard = Guarded(disk, contains_deadline=_HANG, get_deadline=_HANG, breaker=_PATIENT, max_inflight=16)
    store = Store([Tier("disk", guard)], StoreOptions())
    try:
        yield store.open(_NAMESPACE, _LAYOUT)
    finally:
        store.close()
