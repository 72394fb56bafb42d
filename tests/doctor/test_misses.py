"""Why pages were missed, from a server's metrics."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from sgkv.doctor import Level
from sgkv.doctor.misses import ADVICE, examine
from sgkv.metrics import Metrics
from sgkv.reasons import MissReason


def exposition(hits: int, **misses: int) -> str:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.count("hit_pages", {"tier": "disk"}, hits)
    metrics.count("lookup_pages", {"result": "hit"}, hits)
    metrics.count("lookup_pages", {"result": "absent"}, misses.pop("absent", 0))
    for reason, pages in misses.items():
        metrics.count("miss_pages", {"reason": reason}, pages)
    return generate_latest(registry).decode()


def test_every_reason_is_explained() -> None:
    assert set(ADVICE) == set(MissReason)


def test_reasons_come_with_what_to_do() -> None:
    served, absent, late = examine(exposition(90, timeout=3, absent=7))
    assert served.what == "90 pages were served, 10 were not there or not to be had"
    assert (absent.level, "7 pages absent" in absent.what) == (Level.NOTE, True)
    assert (late.level, "deadline" in late.fix) == (Level.PROBLEM, True)


def test_rare_reasons_are_not_worth_a_word() -> None:
    assert len(list(examine(exposition(0, absent=1000, timeout=1)))) == 2


@pytest.mark.parametrize("text", ["", "# HELP other_total x\n# TYPE other_total counter\nother_total 3\n"])
def test_a_server_that_was_not_asked_yet(text: str) -> None:
    (finding,) = examine(text)
    assert "flush_cache" in finding.fix
