"""Kinds that are a matter of counting: references, round trips, hashes."""

import time
from collections.abc import Sequence

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.cpu import CpuBackend
from sgkv.backends.deadline import Deadline
from sgkv.backends.wrapper import Wrapper
from sgkv.keys import hash_pages
from tests.backends.blobs import key_of
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, write

PUTS, BATCH, KEYS = 100_000, 100, 700


def test_no_reference_is_left_by_a_hundred_thousand_puts_and_gets() -> None:
    """Kind: a read keeps a reference a chunk until memory is full. Checked after each thousand."""
    cpu = CpuBackend(1 << 20, prefault=False)
    data, into = memoryview(bytes(4096)), memoryview(bytearray(4096))
    for start in range(0, PUTS, BATCH):
        keys = [key_of((start + at) * 7 % KEYS) for at in range(BATCH)]
        put = cpu.put([PutItem(key, [data]) for key in keys])
        got = cpu.get([GetItem(key, [Part(0, into)]) for key in keys])
        leased = cpu.lease(keys[:5])
        assert put.count(Status.FULL) == 0
        assert got.count(Status.OK) > 0
        for lease in leased:
            if lease is not None:
                lease.release()
        if start % 1000 == 0:
            stats = cpu.stats()
            assert stats.leases == 0
            assert stats.used_bytes <= stats.capacity_bytes == 1 << 20
    cpu.close()


class Counted(Wrapper):
    """A tier without an index of its own, as remote ones are: every `probe` is a round trip."""

    asked = 0

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        self.asked += 1
        return self.inner.probe(keys, deadline)


def test_a_lookup_asks_a_local_tier_twice_however_long_the_chain(disk_rig: Rig) -> None:
    """Kind: a round trip a chunk. Chunks in one batch, then what is left as pages in another."""
    kv = make.mha(pages=64)
    backend = disk_rig.backend(kv)
    guard = backend.store.tiers[0].backend
    guard.inner = counted = Counted(guard.inner)
    keys = chain(62)
    assert all(write(backend, kv, keys, range(62)))
    assert backend.batch_exists([*keys, *chain(800, seed=3)], after()) == 62
    assert counted.asked <= 2


def test_a_hundred_thousand_tokens_are_hashed_in_no_time() -> None:
    """Kind: a second of hashing before each long prompt. The bench holds it to 2 ms on a quiet machine."""
    tokens = list(range(100_000))
    best = min(_seconds(tokens) for _ in range(5))
    assert best < 0.1


def _seconds(tokens: list[int]) -> float:
    began = time.perf_counter()
    hash_pages(tokens, 64)
    return time.perf_counter() - began
