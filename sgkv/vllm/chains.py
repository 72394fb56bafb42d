"""SGLang's page hashes of the requests that vLLM is serving."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from sgkv.keys import hash_pages, namespace_seed

PAGE_TOKENS = 64
"""Of a page, where nobody says otherwise: what SGLang uses with HiCache."""


class Chain:
    """The page hashes of one request, made as far as they are asked for. Any thread."""

    def __init__(self, tokens: Sequence[int], cache_salt: str | None, page_tokens: int) -> None:
        """`tokens` may grow at its end while the request runs, and is only read."""
        self._tokens = tokens
        self._page_tokens = page_tokens
        self._seed = namespace_seed(None, cache_salt)
        self._lock = threading.Lock()
        self._hashes: list[str] = []

    def pages(self, count: int) -> list[str]:
        """Hashes of the first `count` pages; fewer where the sequence is shorter."""
        with self._lock:
            if count > len(self._hashes):
                begin, stop = len(self._hashes) * self._page_tokens, count * self._page_tokens
                prior = self._hashes[-1] if self._hashes else self._seed
                new = list(self._tokens[begin:stop])
                self._hashes += hash_pages(new, self._page_tokens, prior)
            return self._hashes[:count]


class Chains:
    """Chains by request id. Any thread."""

    def __init__(self, page_tokens: int = PAGE_TOKENS) -> None:
        self.page_tokens = page_tokens
        self._chains: dict[str, Chain] = {}

    def begin(self, request_id: str, tokens: Sequence[int], cache_salt: str | None) -> None:
        """A request whose KV its tokens and its salt alone decide."""
        self._chains[request_id] = Chain(tokens, cache_salt, self.page_tokens)

    def of(self, request_id: str) -> Chain | None:
        """None for a request that cannot be named by its tokens, or has ended."""
        return self._chains.get(request_id)

    def forget(self, request_id: str) -> None:
        self._chains.pop(request_id, None)
