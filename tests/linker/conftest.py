"""Linkers over SGLang's own device pools, called as its wrapper calls them, without a server."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer
from sglang.srt.runtime_context import get_context, get_parallel

from sgkv.sglang.linker import SgkvLinker
from sgkv.testing.waiting import wait_until
from tests.sglang.conftest import PATIENT, fresh_process, one_torch_thread
from tests.sglang.pools import slots

__all__ = ["fresh_process", "one_torch_thread"]

PAGE = 16
NO_STATE = SimpleNamespace(mamba_pool=None)


def tiers(folder: Path, names: str = "cpu+disk", **disk: Any) -> list[dict[str, Any]]:
    known = {
        "cpu": {"type": "cpu", "capacity": "16MiB"},
        "disk": {
            "type": "disk", "path": str(folder), "capacity": "256MiB", "min_free": 0, "deadlines": PATIENT,
            **disk,
        },
    }  # fmt: skip
    return [known[name] for name in names.split("+")]


def kv(keys: Sequence[str], pages: Sequence[int] | None = None, page_size: int = PAGE) -> PoolTransfer:
    """Pages of KV, with the device pages they lie in or belong in."""
    indices = None if pages is None else slots(pages, page_size)
    return PoolTransfer(PoolName.KV, device_indices=indices, keys=list(keys))


def side(name: str, keys: Sequence[str], indices: torch.Tensor | None = None) -> PoolTransfer:
    """The last pages of another pool."""
    return PoolTransfer(
        PoolName(name), device_indices=indices, keys=list(keys), hit_policy=PoolHitPolicy.TRAILING_PAGES
    )


@dataclass
class Linked:
    """One linker and the device pool it serves."""

    linker: SgkvLinker
    kvcache: Any

    def offload(self, transfers: list[PoolTransfer], before: Sequence[str] | None = ()) -> bool:
        """Offer, and wait for the result."""
        self.linker.positions.before = before
        assert self.linker.offload(transfers)
        return self.finished()

    def finished(self) -> bool:
        wait_until(lambda: self.linker.num_completed_offloads() > 0, "an offload to end")
        return self.linker.pop_completed_offload()

    def lookup(
        self, transfers: list[PoolTransfer], before: Sequence[str] | None = (), rid: str = "r"
    ) -> list[int]:
        self.linker.positions.before = before
        return self.linker.lookup(rid, transfers)

    def load(self, transfers: list[PoolTransfer], rid: str = "r") -> bool:
        """Queue, start, wait as a forward does, and finish; False where it was refused."""
        if not self.linker.load(rid, transfers):
            return False
        index = self.linker.start_layer_wise_loading()
        counter = self.linker.layer_done_counter
        counter.set_consumer(index)
        for layer in range(counter.num_layers):
            counter.wait_until(layer)
        assert self.linker.finish_layer_wise_loading(index)
        return True

    def counted(self, name: str, value: str = "") -> int:
        return self.linker.store.counters.get(name, value)


@dataclass
class LinkerRig:
    """Opens linkers over one disk folder."""

    folder: Path
    opened: list[SgkvLinker] = field(default_factory=list)

    def open(
        self,
        kvcache: Any,
        *,
        names: str = "cpu+disk",
        requests: Any = NO_STATE,
        disk: Any = None,
        place: Any = None,
        **options: Any,
    ) -> Linked:
        config = {
            "tiers": tiers(self.folder, names, **(disk or {})),
            "engine": {"exists_deadline": 30, "get_deadline": 30, "set_deadline": 30},
            "write_behind": {"tail_delay": 0.01, "drain_timeout": 30},
            "model": {"weights": "r1"},
            "chunk_tokens": 64,
            **options,
        }
        allocator = SimpleNamespace(get_kvcache=lambda: kvcache)
        params = CacheInitParams(
            disable=False, req_to_token_pool=requests, token_to_kv_pool_allocator=allocator, page_size=PAGE
        )
        alone = {
            "tp_rank": 0,
            "tp_size": 1,
            "pp_rank": 0,
            "pp_size": 1,
            "attn_dcp_size": 1,
            "attn_dcp_rank": 0,
        }
        with get_context().override_server_args(), get_parallel().override(**{**alone, **(place or {})}):
            linker = SgkvLinker(None, params, components=None, extra_config=config, forward_stream=None)
        self.opened.append(linker)
        return Linked(linker, kvcache)


@pytest.fixture
def linkers(tmp_path: Path) -> Iterator[LinkerRig]:
    rig = LinkerRig(tmp_path / "kv")
    yield rig
    for linker in rig.opened:
        linker.close()


def of_two(rank: int) -> dict[str, int]:
    """One of two tensor-parallel ranks, as SGLang's own checks want it to be."""
    groups = ("tp", "attn_tp", "moe_tp")
    return {**{f"{group}_size": 2 for group in groups}, **{f"{group}_rank": rank for group in groups}}


def tensors(kvcache: Any) -> list[torch.Tensor]:
    """Every layer of a pool: keys, then values, or latents."""
    if hasattr(kvcache, "k_buffer"):
        return [*kvcache.k_buffer, *kvcache.v_buffer]
    return list(kvcache.kv_buffer)


def fill(kvcache: Any, seed: int) -> None:
    """Random bits everywhere."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in tensors(kvcache):
        raw = tensor.view(-1).view(torch.uint8)
        raw.copy_(torch.randint(0, 256, raw.shape, generator=generator, dtype=torch.uint8))


def rows(kvcache: Any, pages: Sequence[int], page_size: int = PAGE) -> list[torch.Tensor]:
    """The bytes at some pages, a copy, layer by layer."""
    return [tensor[slots(pages, page_size)].clone().view(torch.uint8) for tensor in tensors(kvcache)]


def same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def blobs(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "blobs").rglob("*") if path.is_file())


def flip_a_bit(victims: Sequence[Path]) -> None:
    """In the last page of each."""
    for victim in victims:
        raw = bytearray(victim.read_bytes())
        raw[-1] ^= 1
        victim.write_bytes(raw)


class Gate:
    """An event of a device that is busy; a CPU's own events never wait."""

    def __init__(self) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()

    def synchronize(self) -> None:
        self.reached.set()
        assert self.opened.wait(30)

    def wait(self, _stream: object) -> None:
        """A stream that follows; nothing runs on it here."""


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(SgkvLinker, "record_offload_ready", lambda _self: [gate])
    yield gate
    gate.opened.set()


def offer(linked: Linked, keys: list[str], pages: range) -> bool:
    """Offer pages of KV from the start of a sequence, and wait for nothing."""
    linked.linker.positions.before = ()
    return linked.linker.offload([kv(keys, pages)])
