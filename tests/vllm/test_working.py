"""A worker's side of the connector, over tensors laid out as vLLM's and a real store."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from sgkv.config import load, resolve  # noqa: E402
from sgkv.model import ModelIdentity  # noqa: E402
from sgkv.store.build import build_store  # noqa: E402
from sgkv.testing.waiting import wait_until  # noqa: E402
from sgkv.vllm.chains import Chain  # noqa: E402
from sgkv.vllm.connecting.groups import Group, page_tokens  # noqa: E402
from sgkv.vllm.connecting.messages import Answer, Load, Lookup, Pages, Save  # noqa: E402
from sgkv.vllm.connecting.shelves import Rank  # noqa: E402
from sgkv.vllm.connecting.working import Working  # noqa: E402
from sgkv.vllm.rows import Packing, RowShape  # noqa: E402
from tests.vllm.rig import damage  # noqa: E402

PAGE, BLOCK, LAYERS, HEADS, DIM = 16, 8, 2, 2, 8
TOKENS = random.Random(0).choices(range(1000), k=40 * PAGE)
SHAPE = RowShape(Packing.VEC, "float32", 4, LAYERS, BLOCK, HEADS, DIM)
NAMES = tuple(f"layers.{layer}" for layer in range(LAYERS))
MODEL = ModelIdentity("w", "a", "n", "test")
DISK = {"type": "disk", "capacity": "64MiB"}
CPU = {"type": "cpu", "capacity": "16MiB"}


class Bench:
    """A worker whose blocks are filled with what their number decides."""

    def __init__(
        self,
        folder: Path,
        tiers: Sequence[dict[str, object]],
        windows: Sequence[int] = (0,),
        rollout: str = "all",
    ) -> None:
        options = {
            "rollout": {"mode": rollout},
            "tiers": [{**tier, **({"path": str(folder)} if tier is DISK else {})} for tier in tiers],
        }
        resolved = resolve(load({**options, "chunk_tokens": 64}, environ={}).config)
        self.blocks = {
            name: torch.randn(64, HEADS, BLOCK, 2 * DIM, generator=torch.Generator().manual_seed(at))
            for at, name in enumerate(NAMES)
        }
        groups = [Group(at, NAMES, SHAPE, window) for at, window in enumerate(windows)]
        store, rank = build_store(resolved), Rank(0, 1)
        self.worker = Working(store, resolved.config, MODEL, rank, groups, PAGE, self.blocks)

    def state(self, blocks: Sequence[int]) -> list[torch.Tensor]:
        return [tensor[list(blocks)].clone() for tensor in self.blocks.values()]

    def save(self, number: int, pages: Pages) -> None:
        self.worker.after([Save(number, pages)])

    def settle(self, *numbers: int) -> None:
        left = set(numbers)

        def done() -> bool:
            left.difference_update(self.worker.ended())
            return not left

        wait_until(done, "saves that have ended")

    def ask(self, count: int, request: str = "b") -> Answer:
        hashes = Chain(TOKENS, None, PAGE).pages(count)
        self.worker.start([Lookup(7, request, [], hashes)], [])
        return wait_until(self.worker.answers, "an answer")[7]

    def load(self, load: Load) -> bool:
        self.worker.start([], [load])
        return wait_until(self.worker.loaded, "a load")[load.pages.request]

    def get(self, name: str) -> int:
        return self.worker.store.counters.get(name)


def pages(first: int, stop: int, *tables: Sequence[int], request: str = "a") -> Pages:
    """Pages of the one sequence that all requests here have."""
    hashes = Chain(TOKENS, None, PAGE).pages(stop)
    return Pages(request, hashes[:first], hashes[first:], tables)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "kv", [DISK])
    yield made
    made.worker.close()


def test_what_was_saved_is_loaded_into_other_blocks(bench: Bench) -> None:
    source, target = range(1, 13), range(30, 42)
    bench.save(1, pages(0, 6, source))
    bench.settle(1)
    assert bench.ask(8) == Answer(6)
    before = bench.state([29, 42])
    assert bench.load(Load(pages(0, 6, target, request="b"), 0, 6 * PAGE, layer_wise=False))
    for one, other in zip(bench.state(source), bench.state(target), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(bench.state([29, 42]), before, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("windows", [(0,), (0, PAGE + 1)])
def test_in_shadow_nothing_is_found_and_what_was_there_is_counted(
    tmp_path: Path, windows: tuple[int, ...]
) -> None:
    bench = Bench(tmp_path / "kv", [DISK], windows, "shadow")
    bench.save(1, pages(0, 6, *[range(1, 13)] * len(windows)))
    bench.settle(1)
    assert bench.ask(8) == Answer(0)
    assert bench.get("held_back_tokens") == 6 * PAGE
    assert bench.worker.store.counters.get("lookup_pages", "held_back") == 8
    bench.worker.close()


def test_blocks_that_vllm_shares_are_not_written_to(bench: Bench) -> None:
    """The load begins within a page: its first block was found in vLLM's own cache."""
    bench.save(1, pages(0, 4, range(1, 9)))
    bench.settle(1)
    before = bench.state([50])
    assert bench.load(Load(pages(0, 4, [50, *range(30, 37)], request="b"), BLOCK, 4 * PAGE, layer_wise=False))
    for one, other in zip(bench.state([50]), before, strict=True):
        assert torch.equal(one, other)
    for one, other in zip(bench.state(range(2, 9)), bench.state(range(30, 37)), strict=True):
        assert torch.equal(one, other)


def test_what_is_stored_already_is_not_written_again(bench: Bench) -> None:
    bench.save(1, pages(0, 4, range(1, 9)))
    bench.settle(1)
    written = bench.worker.store.counters.get("written_bytes", "disk")
    bench.save(2, pages(0, 4, range(20, 28)))
    bench.settle(2)
    assert bench.worker.store.counters.get("written_bytes", "disk") == written > 0


def test_nothing_is_read_from_blocks_after_they_were_revoked(bench: Bench) -> None:
    """Of a save either nothing or the bytes of before are found, however the two fall together."""
    source, kept = range(1, 13), bench.state(range(1, 13))
    bench.save(1, pages(0, 6, source))
    bench.worker.before([1], [])
    for tensor in bench.blocks.values():
        tensor[list(source)] = float("nan")
    bench.settle(1)
    found = bench.ask(6).pages
    if found:
        target = range(30, 30 + 2 * found)
        assert bench.load(Load(pages(0, found, target, request="b"), 0, found * PAGE, layer_wise=False))
        for one, other in zip(kept, bench.state(target), strict=True):
            assert torch.equal(one[: 2 * found], other)
    assert found == 6 or bench.get("lost_saves") == 1


def test_a_load_of_damaged_pages_fails_and_says_so(bench: Bench, tmp_path: Path) -> None:
    bench.save(1, pages(0, 4, range(1, 9)))
    bench.settle(1)
    assert bench.ask(4).pages == 4
    damage(tmp_path / "kv")
    assert not bench.load(Load(pages(0, 4, range(30, 38), request="b"), 0, 4 * PAGE, layer_wise=False))
    assert bench.get("failed_loads") == 4


def test_after_a_reset_nothing_of_before_is_found(bench: Bench) -> None:
    bench.save(1, pages(0, 4, range(1, 9)))
    bench.settle(1)
    bench.worker.before([], [], reset=True)
    assert bench.ask(4) == Answer(0)


def test_a_window_needs_its_last_pages_and_other_layers_all(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "kv", [DISK], windows=(0, PAGE + 1))
    bench.save(1, pages(0, 6, range(1, 13), [0] * 6 + list(range(13, 19))))  # pages 3 to 5 of the window
    bench.settle(1)
    assert bench.ask(8).pages == 6
    assert bench.ask(3).pages == 0
    assert bench.ask(4).pages == 4
    table = [0] * 10 + [48, 49]
    assert bench.load(Load(pages(0, 6, range(30, 42), table, request="b"), 0, 6 * PAGE, layer_wise=False))
    for one, other in zip(bench.state([17, 18]), bench.state([48, 49]), strict=True):
        assert torch.equal(one, other)
    bench.worker.close()


def test_pages_in_memory_are_held_and_come_layer_by_layer(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "kv", [CPU, DISK])
    bench.save(1, pages(0, 4, range(1, 9)))
    bench.settle(1)
    assert bench.ask(4) == Answer(4, 4, held=True)
    bench.worker.start([], [Load(pages(0, 4, range(30, 38), request="b"), 0, 4 * PAGE, layer_wise=True)])
    for at, (name, tensor) in enumerate(bench.blocks.items()):
        bench.worker.wait_for_layer(name)
        assert torch.equal(tensor[1:9], tensor[30:38]), at
    bench.worker.after([])
    assert bench.worker.lost_blocks() == set()
    assert bench.worker.store.counters.get("hit_pages", "cpu") == 4
    bench.worker.close()


def test_nothing_is_stored_that_was_computed_from_pages_which_did_not_arrive(tmp_path: Path) -> None:
    """Pages that nobody holds stand for copies that fail."""
    bench = Bench(tmp_path / "kv", [CPU, DISK])
    wanted = pages(0, 4, range(30, 38), request="b")
    bench.worker.start([], [Load(wanted, 0, 4 * PAGE, layer_wise=True)])
    bench.worker.after([Save(1, pages(4, 8, range(38, 46), request="b")), Save(2, pages(0, 4, range(1, 9)))])
    assert bench.worker.lost_blocks() == set(range(30, 38))
    bench.settle(1, 2)
    assert bench.ask(8).pages == 4
    bench.worker.before([], ["b"])
    bench.save(3, pages(4, 8, range(38, 46), request="b"))  # another request by that name
    bench.settle(3)
    assert bench.ask(8).pages == 8
    bench.worker.close()


def test_pages_that_are_held_for_a_request_are_given_back_when_it_ends(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "kv", [CPU])
    bench.save(1, pages(0, 4, range(1, 9)))
    bench.settle(1)
    assert bench.ask(4).held
    arena = bench.worker.store.tiers[0].backend
    assert arena.stats().leases == 4
    bench.worker.before([], ["b"])
    wait_until(lambda: not arena.stats().leases, "leases given back")
    bench.worker.close()


def test_pages_must_fit_vllms_blocks() -> None:
    assert page_tokens({}, 16) == page_tokens({}, 128) == 64
    assert page_tokens({"page_tokens": 96}, 32) == 96
    with pytest.raises(ValueError, match="multiple of 48"):
        page_tokens({}, 48)
