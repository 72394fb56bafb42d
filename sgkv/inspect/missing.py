"""How much of one prompt a tier has, and where that ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from sgkv.backends.base import Backend
from sgkv.inspect.holdings import Holding, holdings
from sgkv.keys import chunk_keys, hash_pages, page_keys


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, or the hashes of pages of unknown size."""

    tokens: tuple[int, ...] = ()
    hashes: tuple[str, ...] = ()

    def pages(self, page_tokens: int) -> Sequence[str]:
        return self.hashes or hash_pages(self.tokens, page_tokens)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one namespace of a tier has of a prompt."""

    tier: str
    namespace: str
    says: dict[str, Any]
    """What one of its blobs says of itself."""
    pages: int
    """Of the prompt, in pages of this namespace."""
    leading: int
    """That can be read from its start."""
    present: int
    """All that are there, also behind a gap."""

    @property
    def verdict(self) -> str:
        """Why it is no more, as far as names can tell."""
        if not self.pages:
            return "the prompt is shorter than a page"
        if self.leading == self.pages:
            return "all of it is there"
        if self.present > self.leading:
            later = self.present - self.leading
            return (
                f"page {self.leading} is missing, {later} later ones are there: evicted, or taken out as bad"
            )
        if self.leading:
            return (
                f"nothing from page {self.leading} on: that far two prompts were equal, or no more was "
                "stored (dropped, or the server ended before it was written)"
            )
        return "nothing: never stored, evicted, or the prompt differs in its first page already"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens."""

    page: int
    """Where blobs do not say it, because they are coded."""
    chunk: int
    """By the configuration."""


def trace(tier: Backend, name: str, prompt: Prompt, sizes: Sizes, namespace: str = "") -> list[Finding]:
    """What every namespace of a tier has of a prompt, the most first.

    Raises OSError where the tier cannot be listed.
    """
    held, _ = holdings(tier, f"{namespace}/" if namespace else "")
    found = [_trace(tier, name, prompt, holding, sizes) for holding in held]
    return sorted(found, key=lambda one: (-one.leading, -one.present))


def _trace(tier: Backend, name: str, prompt: Prompt, holding: Holding, sizes: Sizes) -> Finding:
    page_tokens = int(holding.says.get("page_tokens", sizes.page))
    hashes, per_chunk = prompt.pages(page_tokens), max(1, sizes.chunk // page_tokens)
    places = {key: range(at, at + 1) for at, key in enumerate(page_keys(holding.namespace, hashes))}
    lasts = range(per_chunk - 1, len(hashes), per_chunk)
    keys = chunk_keys(holding.namespace, [hashes[at] for at in lasts])
    places.update({key: range(at + 1 - per_chunk, at + 1) for at, key in zip(lasts, keys, strict=True)})
    # Listed and not asked for: a tier that was opened just now may not know yet what is in it.
    found = (places[blob.key] for blob in tier.scan(f"{holding.namespace}/") if blob.key in places)
    present = set(chain.from_iterable(found))
    leading = next(at for at in count() if at not in present)
    return Finding(name, holding.namespace, holding.says, len(hashes), leading, len(present))
