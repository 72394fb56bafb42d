"""Configured tiers, opened by name for a run that has more patience than an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from sgkv.backends.base import Backend
from sgkv.codecs.sealed import SealedOnly
from sgkv.config import (
    DeadlineConfig,
    ResolvedConfig,
    ResolvedCpu,
    ResolvedDisk,
    ResolvedMooncake,
    ResolvedS3,
    ResolvedValkey,
    load,
    resolve,
)
from sgkv.store.build import open_backend
from sgkv.store.wrapping import wrap

_NAMED = re.compile(r"(?:(?P<file>.+):)?(?P<name>[a-z][a-z0-9_-]{0,31})")
_PATIENT = DeadlineConfig(contains=30.0, get=120.0, put=120.0)

Reachable: TypeAlias = ResolvedDisk | ResolvedMooncake | ResolvedS3 | ResolvedValkey
"""A tier that more than one process can get at."""


class TierError(ValueError):
    """The tier that was named cannot be used for this; the message says what to do."""


@dataclass(frozen=True, slots=True)
class TierName:
    """A tier of a configuration file; without a file, of the one that is in effect."""

    name: str
    file: Path | None = None

    @classmethod
    def parse(cls, text: str) -> TierName:
        """``NAME`` or ``FILE:NAME``. Raises TierError."""
        found = _NAMED.fullmatch(text)
        if found is None:
            raise TierError(f"{text!r} names no tier: write NAME or FILE:NAME")
        return cls(found["name"], Path(found["file"]) if found["file"] else None)


def find_tier(named: TierName, config: Path | None) -> Reachable:
    """The tier called so, with its numbers for this machine. Raises TierError and ConfigError."""
    resolved = resolve(load(file=named.file or config).config.embedded)
    names = [tier.tier.name for tier in resolved.tiers]
    if named.name not in names:
        raise TierError(f"there is no tier {named.name!r}; the configuration has {', '.join(names)}")
    tier = resolved.tiers[names.index(named.name)]
    if isinstance(tier, ResolvedCpu):
        raise TierError(
            f"{named.name!r} is memory inside the server's own process, which no other process can fill or "
            "read: copy into a tier below it, from where the server promotes what it reads"
        )
    return tier


def default_tiers(config: Path | None) -> tuple[str, str]:
    """Nearest and farthest tier below memory. Raises TierError where there are no two, and ConfigError."""
    below = _below_memory(resolve(load(file=config).config.embedded))
    if len(below) < 2:
        raise TierError("the configuration has no two tiers below memory: name them with --from and --to")
    return below[0].tier.name, below[-1].tier.name


@contextmanager
def opened(tier: Reachable, workers: int) -> Iterator[Backend]:
    """The tier's backend, with a guard whose deadlines are minutes; closed at the end.

    Reading from it is no use that eviction takes into account. What is coded stays so on its way; into a
    tier that encrypts nothing is copied that is not sealed. Raises TierError where it cannot be opened.
    """
    settings = tier.tier.model_copy(update={"deadlines": _PATIENT, "max_inflight": workers + 1})
    try:
        bare = open_backend(_as_a_visitor(tier), marks_use=False)
        backend = wrap(SealedOnly(bare) if settings.codec.encrypt else bare, settings, None)
    except (ValueError, OSError) as error:
        raise TierError(f"tier {tier.tier.name!r} cannot be opened: {error}") from error
    try:
        yield backend
    finally:
        backend.close()


def same_place(one: Reachable, other: Reachable) -> bool:
    """Whether two tiers are one and the same folder, or the same part of a bucket."""
    return _place(one) == _place(other)


def describe(tier: Reachable) -> str:
    """For reports."""
    return f"{tier.tier.name} ({_place(tier)})"


def _as_a_visitor(tier: Reachable) -> Reachable:
    """Without what is the servers' part: to examine, sweep and keep listing a bucket, to give memory.

    A bucket with a capacity is listed all the same: what is in it counts. Memory that this process gave
    to a pool would be gone with it, and what had been put there.
    """
    if isinstance(tier, ResolvedMooncake):
        return replace(tier, tier=tier.tier.model_copy(update={"segment": 0, "ssd_path": None}))
    if not isinstance(tier, ResolvedS3):
        return tier
    often = None if tier.capacity is None else tier.tier.list_every
    update = {"examine": False, "list_every": often}
    return replace(tier, ttl=None, tier=tier.tier.model_copy(update=update))


def _place(tier: Reachable) -> str:
    if isinstance(tier, ResolvedDisk):
        return str(tier.path.resolve())
    if isinstance(tier, ResolvedMooncake):
        return f"{tier.tier.master}/{tier.tier.pool_tenant}"
    if isinstance(tier, ResolvedValkey):
        return f"{tier.tier.address}/{tier.tier.database}/{tier.tier.prefix}"
    return f"{tier.tier.endpoint or 's3:/'}/{tier.tier.bucket}/{tier.tier.prefix}"


def _below_memory(resolved: ResolvedConfig) -> list[Reachable]:
    return [tier for tier in resolved.tiers if not isinstance(tier, ResolvedCpu)]
