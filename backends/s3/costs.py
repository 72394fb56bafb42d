"""What a bucket costs a month."""

from __future__ import annotations

import math
from dataclasses import dataclass

_GB = 10**9
_LIST_PAGE = 1000
"""Keys a listing answers with at once."""


@dataclass(frozen=True, slots=True)
class Prices:
    """In one currency: storage a GB (10**9 bytes) and month, requests a thousand, transfer a GB."""

    storage_gb_month: float
    thousand_puts: float
    thousand_gets: float
    upload_gb: float
    retrieval_gb: float


@dataclass(frozen=True, slots=True)
class Use:
    """A month of a fleet. Bytes of blobs."""

    stored: int
    written: int
    read: int
    blob: int
    """Bytes of one."""
    lookups: int = 0
    """Chains looked up that no local index answers for."""
    listings: int = 0
    """Of the whole prefix, over all processes."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of a bill."""

    what: str
    amount: str
    price: float


_PROBES = 50
"""Existence checks of a lookup that nothing local answers: two rounds for where a chain of hundreds ends,
and one for the pages there."""


def bill(use: Use, prices: Prices) -> list[Cost]:
    """What `use` costs by `prices`, without its total."""
    puts = math.ceil(use.written / use.blob)
    gets = math.ceil(use.read / use.blob)
    heads = puts + _PROBES * use.lookups
    lists = use.listings * math.ceil(use.stored / use.blob / _LIST_PAGE)
    return [
        Cost("storage", _gb(use.stored), use.stored / _GB * prices.storage_gb_month),
        Cost("upload", _gb(use.written), use.written / _GB * prices.upload_gb),
        Cost("retrieval", _gb(use.read), use.read / _GB * prices.retrieval_gb),
        Cost("PUT requests", f"{puts:,}", puts / 1000 * prices.thousand_puts),
        Cost("GET requests", f"{gets:,}", gets / 1000 * prices.thousand_gets),
        Cost("HEAD requests", f"{heads:,}", heads / 1000 * prices.thousand_gets),
        Cost("LIST requests", f"{lists:,}", lists / 1000 * prices.thousand_puts),
    ]


def _gb(size: int) -> str:
    return f"{size / _GB:,.0f} GB"
