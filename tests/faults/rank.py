"""One rank of two: its own faults, and SGLang's own agreement with the other. Run by test_ranks.py.

python -m tests.faults.rank RANK MEETING_FILE FOLDER ROUNDS
"""

import json
import os
import random
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sgkv.sglang.cpu import cpu_environment
from sgkv.sglang.cpu.stand_ins import install_stand_ins

os.environ.update({name: value for name, value in cpu_environment().items() if name.startswith("SGLANG_")})
install_stand_ins()

from sglang.srt.managers.cache_controller import HiCacheController, PrefetchAck  # noqa: E402

from sgkv.backends.base import Status  # noqa: E402
from sgkv.backends.faulty import Fault, FaultRule, Faulty  # noqa: E402
from sgkv.sglang.hicache import SgkvHiCache  # noqa: E402
from tests.sglang import pools as make  # noqa: E402
from tests.sglang.conftest import Rig, after, chain, read, write  # noqa: E402
from tests.sglang.pools import Pools, fill, page_bytes  # noqa: E402

PAGES = 12
KEYS = chain(PAGES)
HANG_SECONDS = 0.05
FAULTS: list[list[FaultRule]] = [
    [],
    [FaultRule(Fault.RAISE)],
    [FaultRule(Fault.HANG, frozenset({"contains"}))],
    [FaultRule(Fault.HANG, frozenset({"get"}))],
    [FaultRule(Fault.FLIP, frozenset({"get"}))],
    [FaultRule(Fault.SHORT, frozenset({"get"}))],
    [FaultRule(Fault.STATUS, frozenset({"get"}), status=Status.ABSENT)],
    [FaultRule(Fault.RAISE, probability=0.5)],
]


class Agreement:
    """What ranks of one server do with their answers, by SGLang's own methods."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._controller: Any = object.__new__(HiCacheController)
        self._controller.prefetch_hits_sync_groups = [group]
        self._controller.prefetch_completion_sync_groups = [group]

    def on_hits(self, pages: int) -> int:
        return self._controller._sync_prefetch_hit_query(None, pages)

    def on_completed(self, pages: int) -> int:
        ack = object.__new__(PrefetchAck)
        ack.completed_tokens = pages
        self._controller._reduce_prefetch_ack(ack)
        return int(ack.completed_tokens)


def opened(rank: int, folder: Path) -> tuple[SgkvHiCache, Pools]:
    kv = make.mha(pages=2 * PAGES)
    fill(kv, seed=rank)
    tier = {
        "type": "disk", "path": str(folder), "min_free": 0, "faults": {"absent": 1e-9},
        "deadlines": {"contains": HANG_SECONDS, "get": HANG_SECONDS, "put": 30},
        "breaker": {"cooldown": "1ms", "max_cooldown": "1ms"},
    }  # fmt: skip
    place = {"tp_rank": rank, "tp_size": 2}
    return Rig(folder).backend(kv, place, tiers=[tier]), kv


def leading(flags: list[bool]) -> int:
    return flags.index(False) if False in flags else len(flags)


def rounds(rank: int, folder: Path, count: int, agreement: Agreement) -> list[dict[str, int]]:
    backend, kv = opened(rank, folder)
    assert all(write(backend, kv, KEYS, range(PAGES)))
    guard = backend.store.tiers[0].backend
    draw = random.Random(rank)
    log = []
    for _ in range(count):
        faulty = Faulty(guard.inner.inner if isinstance(guard.inner, Faulty) else guard.inner)
        faulty.set_rules(draw.choice(FAULTS))
        guard.inner = faulty
        found = backend.batch_exists(KEYS, after())
        agreed = agreement.on_hits(found)
        flags = read(backend, kv, KEYS[:agreed], range(PAGES, PAGES + agreed)) if agreed else []
        done = agreement.on_completed(leading(flags))
        faulty.release()
        wrong = sum(page_bytes(kv.host, PAGES + at) != page_bytes(kv.host, at) for at in range(done))
        log.append({"found": found, "agreed": agreed, "read": leading(flags), "done": done, "wrong": wrong})
    assert not backend.store.counters.get("internal_errors")
    backend.close()
    return log


def take_part(rank: int, meeting: str, folder: Path, count: int) -> list[dict[str, int]]:
    """What this rank found, agreed on and read in each round."""
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=timedelta(seconds=100)
    )
    try:
        log = rounds(rank, folder, count, Agreement(dist.group.WORLD))
        dist.barrier()
    finally:
        dist.destroy_process_group()
    return log


if __name__ == "__main__":
    torch.set_num_threads(1)
    log = take_part(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    sys.stdout.write(json.dumps(log) + "\n")
