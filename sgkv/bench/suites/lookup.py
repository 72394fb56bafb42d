"""How much of a long prompt is there: asked once a request, while the request waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sgkv.bench.contest import fresh_keys
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.sglang.ready import require_sglang
from sgkv.bench.timing import interleave

if TYPE_CHECKING:
    from sgkv.bench.sglang.adapter import Adapter
    from sgkv.bench.sglang.peer import FileBackend

_TOKENS = 100_000
_BATCH = 128
"""Pages SGLang stores a call (STORAGE_BATCH_SIZE)."""
_CAPACITY = 256 << 20
_BARS = {"cpu": Bar("value", "<=", 0.5, "ms"), "disk": Bar("value", "<=", 3, "ms")}


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """``TIER_100k``: a chain of 100,000 tokens, all there; ``TIER_100k_miss``: none of it is."""
    require_sglang()
    from sgkv.bench.sglang.adapter import Adapter
    from sgkv.bench.sglang.peer import FileBackend
    from sgkv.bench.sglang.pool import PAGE_TOKENS, TINY, HostPages

    chain = fresh_keys(-(-effort.of(_TOKENS, least=PAGE_TOKENS) // PAGE_TOKENS))
    host = HostPages(TINY, _BATCH)
    folder = scratch.disk()
    peer = FileBackend(host, folder / "peer")
    for batch in _batches(chain):
        peer.put(batch)
    with Adapter(host, capacity=_CAPACITY) as cpu:
        yield from _records("cpu", cpu, peer, chain, effort)
    with Adapter(host, folder=folder / "sgkv") as disk:
        yield from _records("disk", disk, peer, chain, effort)


def _records(
    tier: str, adapter: Adapter, peer: FileBackend, chain: Sequence[str], effort: Effort
) -> Iterator[Record]:
    for at, batch in enumerate(_batches(chain)):
        adapter.put(batch, before=chain[: at * _BATCH])
    absent = fresh_keys(len(chain))
    questions: dict[str, Callable[[], object]] = {
        "hit": lambda: _require(adapter.hits(chain), len(chain)),
        "miss": lambda: _require(adapter.hits(absent), 0),
        "peer hit": lambda: _require(peer.hits(chain), len(chain)),
        "peer miss": lambda: _require(peer.hits(absent), 0),
    }
    series = interleave(questions, effort.times(4))
    for case, question, bars in (("", "hit", (_BARS[tier],)), ("_miss", "miss", ())):
        ours = series[question]
        yield Record(
            "lookup",
            f"{tier}_100k{case}",
            ours.wall * 1e3,
            "ms",
            ratio_to_peer=ours.speed_over(series[f"peer {question}"]),
            bars=bars,
        )


def _batches(chain: Sequence[str]) -> Iterator[Sequence[str]]:
    return (chain[start : start + _BATCH] for start in range(0, len(chain), _BATCH))


def _require(pages: int, expected: int) -> None:
    if pages != expected:
        raise BenchError(f"a lookup found {pages} pages, but {expected} are there")
