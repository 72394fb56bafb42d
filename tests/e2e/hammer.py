"""A process that stores pages through the HiCache adapter, over SGLang's own host pool, until it is killed.

What a page holds follows from its key, so whoever reads it can tell whether it is right.
"""

import json
import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from sgkv.sglang.cpu import cpu_environment
from sgkv.sglang.cpu.stand_ins import install_stand_ins

os.environ.update({name: value for name, value in cpu_environment().items() if name.startswith("SGLANG_")})
install_stand_ins()

from sglang.srt.mem_cache.hicache_storage import (  # noqa: E402
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolName,
)
from sglang.srt.mem_cache.utils import get_hash_str  # noqa: E402

from sgkv.sglang.hicache import SgkvHiCache  # noqa: E402
from tests.sglang.pools import mha, page_bytes, slots  # noqa: E402

PAGE_SIZE, PAGES = 16, 8
"""Tokens of a page, and pages of a sequence: two chunks of 64 tokens."""
WRITERS = 3
MAX_SEQUENCES = 10_000
PATIENT = {"contains": 30, "get": 30, "put": 30}


class Store:
    """The adapter over a folder, with a host pool of one sequence for each of `WRITERS`."""

    def __init__(self, folder: Path, capacity: str, *, cpu: bool) -> None:
        tiers: list[dict[str, object]] = [{"type": "cpu", "capacity": "16MiB"}] if cpu else []
        disk = {
            "type": "disk",
            "path": str(folder),
            "capacity": capacity,
            "min_free": 0,
            "deadlines": PATIENT,
        }
        extra = {
            "tiers": [*tiers, disk],
            "engine": {"exists_deadline": 30, "get_deadline": 30, "set_deadline": 30},
            "write_behind": {"tail_delay": 0.01},
            "model": {"weights": "r1"},
            "chunk_tokens": 64,
        }
        rank = {
            "tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1,
            "is_mla_model": False, "enable_storage_metrics": False, "is_page_first_layout": True,
            "model_name": "served-name",
        }  # fmt: skip
        self.host = mha(page_size=PAGE_SIZE, pages=WRITERS * PAGES).host
        self.adapter = SgkvHiCache(HiCacheStorageConfig(**rank, extra_config=extra), {})
        self.adapter.register_mem_pool_host(self.host)
        self.adapter.register_mem_host_pool_v2(self.host, PoolName.KV)

    def put(self, sequence: int, region: int = 0) -> bool:
        """Store a sequence through the pages of a region; True once all of it is on disk."""
        keys = chain(sequence)
        for page, key in enumerate(keys, start=region * PAGES):
            self.host.set_from_flat_data_page(page * PAGE_SIZE, self._content(key))
        stored = self.adapter.batch_set_v1(keys, self._slots(region), HiCacheStorageExtraInfo(prefix_keys=[]))
        return all(stored) and self.adapter.store.flush(30)

    def get(self, sequence: int, region: int = 0) -> tuple[int, int]:
        """(pages found, pages found that are wrong) of a sequence."""
        keys = chain(sequence)
        hits = self.adapter.batch_get_v1(keys, self._slots(region), HiCacheStorageExtraInfo(prefix_keys=[]))
        pages = [page for page, hit in enumerate(hits) if hit]
        wrong = sum(
            page_bytes(self.host, region * PAGES + page) != page_bytes_of(self._content(keys[page]))
            for page in pages
        )
        return len(pages), wrong

    def _slots(self, region: int) -> torch.Tensor:
        return slots(range(region * PAGES, (region + 1) * PAGES), PAGE_SIZE)

    def _content(self, key: str) -> torch.Tensor:
        dummy = self.host.get_dummy_flat_data_page()
        raw = bytes.fromhex(key) * (dummy.nbytes // 32)
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dummy.dtype)


def page_bytes_of(content: torch.Tensor) -> bytes:
    return content.view(torch.uint8).numpy().tobytes()


def chain(sequence: int) -> list[str]:
    """SGLang's page hashes of a sequence that shares nothing with others."""
    first = sequence * PAGE_SIZE * PAGES
    return get_hash_str(list(range(first, first + PAGE_SIZE * PAGES)), None, PAGE_SIZE)


def hammer(folder: Path, capacity: str, first: int, report: Connection) -> None:
    """Store sequences `first`, `first` + 1, ... and reread some; report each that is safe on disk.

    Never returns before `MAX_SEQUENCES`: the caller kills it.
    """
    torch.set_num_threads(1)
    store, lock = Store(folder, capacity, cpu=True), threading.Lock()

    def write(region: int) -> None:
        for sequence in range(first + region, first + MAX_SEQUENCES, WRITERS):
            if store.put(sequence, region):
                with lock:
                    report.send_bytes(json.dumps(sequence).encode())
            store.get(max(first + region, sequence - 2 * WRITERS), region)

    writers = [threading.Thread(target=write, args=(region,)) for region in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
