"""KV events of an engine: which blocks its own cache has, as pages of a store.

SGLang and vLLM publish them in one format: MessagePack, a batch an array, an event a map with its ``type``
(`sglang/srt/disaggregation/kv_events.py` of 0.5.23, `vllm/distributed/kv_events.py` of 0.32). What a block is
differs: its hash is the engine's own, and blocks of vLLM are shorter than pages. So pages are worked out of
the tokens, which every event of a stored block brings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from sgkv.control.table import HASH_BYTES
from sgkv.keys import hash_pages

BlockHash = int | bytes
_ON_DEVICE = (None, "GPU")
MOST_BLOCKS = 500_000
"""Of one engine: 32 million tokens in blocks of 64."""


class Stored(msgspec.Struct, tag="BlockStored", frozen=True):
    """Blocks of one sequence, one after the other."""

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None = None
    token_ids: list[int] = []
    """Of all of them."""
    block_size: int = 0
    """Tokens."""
    medium: str | None = None
    lora_id: int | None = None
    lora_name: str | None = None
    cache_salt: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None

    @property
    def apart(self) -> bool:
        """Whether an adapter or a salt has a part in the hashes, which events do not tell enough of."""
        keyed = any(self.extra_keys or ())
        return keyed or not (self.lora_id is None and self.lora_name is None and self.cache_salt is None)


class Removed(msgspec.Struct, tag="BlockRemoved", frozen=True):
    """Blocks that are gone from one medium."""

    block_hashes: list[BlockHash]
    medium: str | None = None
    group_idx: int | None = None


class Cleared(msgspec.Struct, tag="AllBlocksCleared", frozen=True):
    """Nothing is left: a flush, or new weights."""


EngineEvent = Stored | Removed | Cleared


class Batch(msgspec.Struct, array_like=True, frozen=True):
    """What is published at a time."""

    time: float
    events: list[EngineEvent]
    rank: int | None = None


decode = msgspec.msgpack.Decoder(Batch).decode
"""Raises msgspec.MsgspecError for anything else."""


class _Block(NamedTuple):
    last: str | None
    """Hash of the last whole page up to the block's end."""
    rest: tuple[int, ...]
    """Tokens after that page."""
    page: bytes | None
    """Of the page that ends with the block, the first bytes of its hash."""


class EngineCache:
    """Pages of `page_tokens` on an engine's device. Not thread-safe.

    A block whose parent is not known is not followed: what is told here is too little rather than too much.
    """

    def __init__(self, page_tokens: int, most: int = MOST_BLOCKS) -> None:
        """Past `most` blocks new ones are ignored."""
        self._page_tokens = page_tokens
        self._most = most
        self._blocks: dict[BlockHash, _Block] = {}

    @property
    def pages(self) -> list[bytes]:
        return [block.page for block in self._blocks.values() if block.page is not None]

    def apply(self, events: Iterable[EngineEvent]) -> Iterator[tuple[bytes, bool]]:
        """Pages that came, or went, in the order in which they did."""
        for event in events:
            if isinstance(event, Stored):
                yield from self._store(event)
            elif isinstance(event, Removed):
                yield from self._remove(event)
            else:
                yield from self.forget()

    def forget(self) -> Iterator[tuple[bytes, bool]]:
        """All of it is gone."""
        pages, self._blocks = self.pages, {}
        return ((page, False) for page in pages)

    def _store(self, event: Stored) -> Iterator[tuple[bytes, bool]]:
        size, hashes, tokens = event.block_size, event.block_hashes, event.token_ids
        if event.medium not in _ON_DEVICE or event.apart or event.group_idx not in (None, 0):
            return
        if (
            size < 1
            or self._page_tokens % size
            or len(tokens) != size * len(hashes)
            or min(tokens, default=0) < 0
        ):
            return
        before = _ROOT if event.parent_block_hash is None else self._blocks.get(event.parent_block_hash)
        if before is None:
            return
        for at, name in enumerate(hashes):
            block = self._follow(before, tokens[at * size : (at + 1) * size])
            if name not in self._blocks and len(self._blocks) < self._most:
                self._blocks[name] = block
                if block.page is not None:
                    yield block.page, True
            before = block

    def _remove(self, event: Removed) -> Iterator[tuple[bytes, bool]]:
        if event.medium not in _ON_DEVICE or event.group_idx not in (None, 0):
            return
        for name in event.block_hashes:
            block = self._blocks.pop(name, None)
            if block is not None and block.page is not None:
                yield block.page, False

    def _follow(self, before: _Block, tokens: list[int]) -> _Block:
        rest = (*before.rest, *tokens)
        if len(rest) < self._page_tokens:
            return _Block(before.last, rest, None)
        page = hash_pages(rest, self._page_tokens, before.last)[0]
        return _Block(page, (), bytes.fromhex(page[: 2 * HASH_BYTES]))


_ROOT = _Block(None, (), None)
