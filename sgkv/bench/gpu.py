"""A model's KV between a paged pool, a chunk on the same device, and pinned host memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.timing import interleave
from sgkv.triton_kernels.packing import chunk_geometry, pack, unpack
from sgkv.triton_kernels.pool import PagedPool
from sgkv.triton_kernels.variants import Model

CHUNK_TOKENS = 256
TOKENS = 4096
"""Tokens moved at once: more bytes than the caches of a GPU hold."""
_REPEATS = 10
"""Calls that are queued before the device is waited for, so that what a launch takes is hidden."""

Move = Callable[[], object]


class Moves:
    """The ways to move one model's KV, and plain copies of as many bytes."""

    def __init__(self, model: Model, device: torch.device, tokens: int) -> None:
        """`tokens`, a multiple of 256, lie in pages scattered over a pool of twice as many."""
        self._page_size, self._device = model.page_size, device
        self._pool = _pool(model, device, 2 * tokens)
        slots = _scattered_pages(2 * tokens, model.page_size, device)
        self._slots, self._free = slots[:tokens].contiguous(), slots[tokens:].contiguous()
        self.size = chunk_geometry(self._pool, model.page_size).chunk_bytes(tokens)
        self._chunk, self._twin = torch.zeros(2, self.size, dtype=torch.uint8, device=device)
        self._host = torch.zeros(self.size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._runs = self._slots.split(CHUNK_TOKENS)
        self._pieces = self._host.chunk(len(self._runs))
        self._staging = torch.zeros(2, len(self._pieces[0]), dtype=torch.uint8, device=device)

    def pack(self) -> None:
        pack(self._pool, self._slots, self._chunk, page_size=self._page_size)

    def unpack(self) -> None:
        unpack(self._pool, self._slots, self._chunk, page_size=self._page_size)

    def copy(self) -> None:
        """As many bytes from the device to itself."""
        self._twin.copy_(self._chunk)

    def store(self) -> None:
        """Each chunk is packed, then moved to pinned memory by one copy."""
        for at, (slots, piece) in enumerate(zip(self._runs, self._pieces, strict=True)):
            staged = self._staging[at % 2]
            pack(self._pool, slots, staged, page_size=self._page_size)
            piece.copy_(staged, non_blocking=True)

    def load(self) -> None:
        """The reverse of `store`."""
        for at, (slots, piece) in enumerate(zip(self._runs, self._pieces, strict=True)):
            staged = self._staging[at % 2]
            staged.copy_(piece, non_blocking=True)
            unpack(self._pool, slots, staged, page_size=self._page_size)

    def copy_out(self) -> None:
        """As many bytes to pinned memory, by one copy."""
        self._host.copy_(self._chunk, non_blocking=True)

    def copy_in(self) -> None:
        """As many bytes from pinned memory, by one copy."""
        self._chunk.copy_(self._host, non_blocking=True)

    def require_intact(self) -> None:
        """Store and load to other pages; raises BenchError unless every row is the same there."""
        self.store()
        self.wait()
        for slots, piece in zip(self._free.split(CHUNK_TOKENS), self._pieces, strict=True):
            unpack(self._pool, slots, piece.to(self._device), page_size=self._page_size)
        for plane in self._pool.planes:
            for tensor in plane.tensors:
                if not torch.equal(tensor[self._slots], tensor[self._free]):
                    raise BenchError("rows came back from a chunk other than they went into it")

    def wait(self) -> None:
        """Until the device has done all that was queued."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def speeds(name: str, model: Model, device: torch.device, effort: Effort) -> Iterator[Record]:
    """Cases ``{pack,unpack,d2h,h2d}_NAME``; raises BenchError for rows that come back changed."""
    tokens = effort.of(TOKENS // CHUNK_TOKENS) * CHUNK_TOKENS
    moves = Moves(model, device, tokens)
    moves.require_intact()
    within = Bar("ratio_to_raw", ">=", 0.85, "of a device-to-device copy")
    out = Bar("ratio_to_raw", ">=", 0.9, "of one copy to pinned memory")
    yield from _beside(
        moves, {f"pack_{name}": moves.pack, f"unpack_{name}": moves.unpack}, moves.copy, effort, within
    )
    yield from _beside(moves, {f"d2h_{name}": moves.store}, moves.copy_out, effort, out)
    yield from _beside(moves, {f"h2d_{name}": moves.load}, moves.copy_in, effort)


def _beside(moves: Moves, ours: dict[str, Move], plain: Move, effort: Effort, *bars: Bar) -> Iterator[Record]:
    repeats = effort.of(_REPEATS)
    contenders = {case: _repeated(moves, move, repeats) for case, move in {**ours, "raw": plain}.items()}
    series = interleave(contenders, effort.rounds)
    for case in ours:
        speed = moves.size * repeats / series[case].wall / 1e9
        ratio = series[case].speed_over(series["raw"])
        yield Record("kernels", case, speed, "GB/s", ratio_to_raw=ratio, bars=bars)


def _repeated(moves: Moves, move: Move, repeats: int) -> Move:
    def run() -> None:
        for _ in range(repeats):
            move()
        moves.wait()

    return run


def _pool(model: Model, device: torch.device, slots: int) -> PagedPool:
    def layer(dim: int) -> torch.Tensor:
        return torch.randn(slots, model.heads, dim, dtype=torch.bfloat16, device=device)

    return PagedPool(*([layer(dim) for _ in range(model.layers)] for dim in model.dims))


def _scattered_pages(slots: int, page_size: int, device: torch.device) -> torch.Tensor:
    """Every slot once; those of a page together, the pages in a random order that is always the same."""
    pages = torch.randperm(slots // page_size, generator=torch.Generator().manual_seed(0))
    return (pages[:, None] * page_size + torch.arange(page_size)).flatten().to(device)
