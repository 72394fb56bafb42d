"""The demo's verdict, table and JSON, from runs that need no server."""

from collections import Counter
from typing import Any

import pytest
from rich.console import Console

from sgkv.demo import run_demo
from sgkv.demo.results import Baseline, Run, as_json, as_table, complaints
from sgkv.testing.client import Generation
from sgkv.testing.pairs import Cost

FULL = 2048


def run(name: str, cached: int = FULL, *, equal: bool = True, ttft: float = 1.0, **moved: int) -> Run:
    tiers = {"device": 0, "host": 0, "storage": cached} if cached else {}
    answer = Generation((1,), (-0.5,), "", 2100, cached, tiers, ttft, ttft)
    return Run(name, answer, FULL, equal, Counter({("read", tier): n for tier, n in moved.items()}))


def four(**changes: Run) -> list[Run]:
    runs = {
        "cold": run("cold", 0, ttft=2.0),
        "warm": run("warm", cpu=8 * 2**20),
        "restarted": run("restarted", disk=8 * 2**20),
        "emptied": run("emptied", 0),
    }
    return list({**runs, **changes}.values())


def test_all_is_well():
    assert complaints(four()) == []


@pytest.mark.parametrize("name", ["warm", "restarted", "emptied"])
def test_another_answer_is_a_failure(name: str):
    assert len(complaints(four(**{name: run(name, equal=False)}))) == 1


@pytest.mark.parametrize(("cached", "failures"), [(0, 1), (1843, 1), (1844, 0), (FULL, 0)])
def test_a_restart_must_find_nine_tenths(cached: int, failures: int):
    assert len(complaints(four(restarted=run("restarted", cached)))) == failures


def test_the_json_has_the_names_that_stay():
    written = as_json("sglang", four(), None)
    assert written["engine"] == "sglang"
    assert [entry["name"] for entry in written["runs"]] == ["cold", "warm", "restarted", "emptied"]
    assert written["runs"][1] == {
        "name": "warm",
        "prompt_tokens": 2100,
        "cached_tokens": FULL,
        "full_page_tokens": FULL,
        "cached_by_tier": {"device": 0, "host": 0, "storage": FULL},
        "ttft_s": 1.0,
        "equal_output": True,
    }
    assert written["bytes_moved"]["restarted"] == {"read_disk": 8 * 2**20}
    assert written["baseline"] is None


def baseline(*ratios: float) -> dict[str, Any]:
    plain = [Cost(2.0, 4.0), Cost(8.0, 1.0), Cost(2.0, 4.0), Cost(2.0, 4.0)][: len(ratios)]
    ours = [Cost(ttft * ratio, 1.5 * cpu) for ratio, (ttft, cpu) in zip(ratios, plain, strict=True)]
    return Baseline(plain, ours).as_json()


def test_the_baseline_compares_pairs():
    found = baseline(1.0, 1.21)
    assert (found["plain_ttft_s"], found["sgkv_ttft_s"]) == pytest.approx((5.0, 5.84))
    assert (found["ratio"], found["cpu_ratio"]) == pytest.approx((1.1, 1.5))


@pytest.mark.parametrize(
    ("ratios", "ok"),
    [((1.02, 1.02), True), ((1.05, 1.05), False), ((1.01, 1.10, 0.97, 1.06), None), ((1.05,), None)],
)
def test_a_restless_machine_proves_nothing(ratios: tuple[float, ...], ok: bool | None):
    assert baseline(*ratios)["ok"] is ok


def test_the_table_shows_every_run_in_eighty_columns():
    console = Console(width=80, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(as_table("sglang", four(warm=run("warm", equal=False, cpu=8 * 2**20))))
    lines = capture.get().splitlines()
    rows = {line.split()[0]: line for line in lines if line.strip()}
    assert {"cold", "warm", "restarted", "emptied"} <= rows.keys()
    assert "8.0 MiB from cpu" in rows["warm"]
    assert rows["warm"].split()[-1] == "no"
    assert "2.0x" in rows["restarted"]


def test_an_engine_without_a_demo_is_refused():
    with pytest.raises(ValueError, match="no demo for engine 'tgi'"):
        run_demo("tgi")
