"""What the scheduler's side keeps of each request, and the arithmetic of tokens, pages and blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vllm.v1.metrics.cache_hit_source import CacheHitSource

from sgkv.vllm.chains import Chain
from sgkv.vllm.connecting.messages import Answer, Pages, Tables


@dataclass(frozen=True, slots=True)
class Plan:
    """What decides the scheduler's orders."""

    page_tokens: int
    block_tokens: int
    chunk_pages: int
    loads: bool
    saves: bool
    announces: bool
    """Whether a finished request says how many pages were stored of it."""
    below: CacheHitSource
    """What vLLM calls the tier below the cpu tier."""

    def pages(self, first: int, stop: int) -> range:
        """Pages that hold the tokens `first` to `stop`."""
        return range(first // self.page_tokens, -(-stop // self.page_tokens))

    def cut(self, tables: Tables, pages: range) -> list[list[int]]:
        """The part of block tables that holds these pages."""
        first = pages.start * self.page_tokens // self.block_tokens
        stop = -(-pages.stop * self.page_tokens // self.block_tokens)
        return [list(table[first:stop]) for table in tables]

    def full(self, tracked: Tracked, computed: int) -> int:
        """Pages that `computed` tokens of a request fill."""
        return min(computed, len(tracked.request.all_token_ids)) // self.page_tokens

    def whole(self, pages: int) -> int:
        """Leading pages that make up whole chunks."""
        return pages - pages % self.chunk_pages


@dataclass(slots=True)
class Tracked:
    """One request that can be named by its tokens."""

    request: Any
    chain: Chain
    local: int = 0
    """Tokens that vLLM had itself at the last lookup."""
    offered: int = 0
    """Pages that were loaded or are being stored."""
    source: tuple[int, Answer] = (0, Answer(0))
    loading: bool = False
    """Blocks hold nothing of use until vLLM hears otherwise."""
    loaded: frozenset[int] = frozenset()
    """Blocks of the last load."""
    failed: bool = False
    """A load failed, and none is tried again."""
    outdated: bool = False
    """Its KV may be of weights that are no longer served: nothing of it is stored."""

    def pages(self, pages: range, tables: Tables) -> Pages:
        """Pages by their indices, and the part of the block tables that holds them."""
        hashes = self.chain.pages(pages.stop)
        return Pages(self.request.request_id, hashes[: pages.start], hashes[pages.start :], tables)


def computed_after(step: Any) -> Iterable[tuple[str, int]]:
    """(request, tokens whose KV exists after this step)."""
    for new in step.scheduled_new_reqs:
        yield new.req_id, new.num_computed_tokens + step.num_scheduled_tokens[new.req_id]
    cached = step.scheduled_cached_reqs
    for request, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
        yield request, computed + step.num_scheduled_tokens[request]


def newly_written(step: Any, block_tokens: int) -> Iterable[int]:
    """Blocks that this step hands out: all of a request's that hold nothing computed yet."""
    cached = step.scheduled_cached_reqs
    tables = [(new.block_ids, new.num_computed_tokens // block_tokens) for new in step.scheduled_new_reqs]
    for request, new, computed in zip(
        cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
    ):
        if new is not None:
            tables.append((new, computed // block_tokens if request in cached.resumed_req_ids else 0))
    return (block for groups, first in tables for table in groups for block in table[first:])
