"""Every call that SGLang makes, with the time it may take when nothing below answers."""

import time
from collections.abc import Callable, Sequence

import torch

from sgkv.sglang.hicache import SgkvHiCache
from tests.sglang.conftest import after, chain, transfer
from tests.sglang.pools import slots

PAGES = 8
KEYS = chain(PAGES)
FLAT = 6144
"""Elements of a page of `pools.mha`."""

Call = Callable[[SgkvHiCache], object]


def _at() -> torch.Tensor:
    return slots(range(PAGES), 16)


def _flat() -> list[torch.Tensor]:
    return [torch.zeros(FLAT) for _ in KEYS]


def _other(seed: int) -> list[str]:
    return chain(PAGES, seed=seed)


READS: dict[str, Call] = {
    "exists": lambda b: b.exists(KEYS[0]),
    "batch_exists": lambda b: b.batch_exists(KEYS, after()),
    "batch_exists_v2": lambda b: b.batch_exists_v2(KEYS, [transfer("kv", KEYS)], after()).kv_hit_pages,
    "get": lambda b: b.get(KEYS[0], torch.zeros(FLAT)),
    "batch_get": lambda b: b.batch_get(KEYS, _flat()),
    "batch_get_v1": lambda b: b.batch_get_v1(KEYS, _at(), after()),
    "batch_get_v2": lambda b: b.batch_get_v2([transfer("kv", KEYS, _at())], after()),
}
WRITES: dict[str, Call] = {
    "set": lambda b: b.set(_other(1)[0], torch.zeros(FLAT)),
    "batch_set": lambda b: b.batch_set(_other(2), _flat()),
    "batch_set_v1": lambda b: b.batch_set_v1(_other(3), _at(), after()),
    "batch_set_v2": lambda b: b.batch_set_v2([transfer("kv", _other(4), _at())], after()),
}
CONTROLS: dict[str, Call] = {
    "get_stats": lambda b: b.get_stats(),
    "clear": lambda b: b.clear(),
    "close": lambda b: b.close(),
}
NOTHING: dict[str, object] = {
    "exists": False,
    "batch_exists": 0,
    "batch_exists_v2": 0,
    "get": None,
    "batch_get": [None] * PAGES,
    "batch_get_v1": [False] * PAGES,
    "batch_get_v2": {"kv": [False] * PAGES},
    "set": False,
    "batch_set": False,
    "batch_set_v1": [False] * PAGES,
    "batch_set_v2": {"kv": [False] * PAGES},
}
"""What each answers when there is nothing to be had."""
SLACK = 2.0
"""Seconds for a busy machine. A call that is not bounded takes far more: the hangs here last a minute."""
CONTROL_LIMITS = {"get_stats": SLACK, "clear": 12 + SLACK, "close": 9 + SLACK}


def timed(call: Call, backend: SgkvHiCache) -> tuple[object, float]:
    began = time.monotonic()
    answer = call(backend)
    return answer, time.monotonic() - began


def all_in_time(backend: SgkvHiCache, names: Sequence[str], deadline: float) -> dict[str, object]:
    """Make these calls and the controls; what the first ones answered."""
    answers = {}
    for name in names:
        answers[name], took = timed((READS | WRITES)[name], backend)
        assert took < deadline + SLACK, f"{name} took {took:.2f} s"
    for name, call in CONTROLS.items():
        _, took = timed(call, backend)
        assert took < CONTROL_LIMITS[name], f"{name} took {took:.2f} s"
    return answers
