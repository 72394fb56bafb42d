"""The pools of one rank and their sessions in the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sgkv.chunk.layout import Order
from sgkv.config import ConfigError
from sgkv.grid import cells, gridded
from sgkv.reasons import MissReason
from sgkv.sglang.facts import kv_heads
from sgkv.sglang.naming import PlacedPool, ServedModel, pool_namespace, replicated, share
from sgkv.sglang.pool import HostPool, is_logical
from sgkv.store.cells import Cell, open_cells

if TYPE_CHECKING:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig

    from sgkv.config import Config
    from sgkv.store.base import PageSession, PageStore

logger = logging.getLogger("sgkv")

_KV = "kv"

P = TypeVar("P", bound=PlacedPool)


@dataclass(frozen=True, slots=True)
class Shelf(Generic[P]):
    """One pool and where its pages are kept."""

    pool: P
    session: PageSession


class Shelves(Generic[P]):
    """All pools of a rank under the current state of the weights. Any thread."""

    def __init__(
        self, store: PageStore, config: Config, rank: HiCacheStorageConfig, model: ServedModel
    ) -> None:
        self._store = store
        self._config = config
        self._rank = rank
        self.model = model
        self._lock = threading.Lock()
        self._epoch = ""
        self._suspended = False
        self._shelves: dict[str, Shelf[P]] = {}

    def place(self, pool: P) -> None:
        """Open a pool's session."""
        with self._lock:
            self._shelves[pool.name] = self._open(pool)

    def usable(self, pool: str) -> Shelf[P] | MissReason:
        """The shelf of a pool, or why it must not be used now."""
        if self._suspended:
            return MissReason.SUSPENDED
        return self._shelves.get(pool, MissReason.UNSUPPORTED)

    def suspend(self) -> None:
        """Read and write nothing until `resume`: the weights are changing."""
        self._suspended = True

    def enter_epoch(self, epoch: str) -> None:
        """From now on pages belong to the weights that `epoch` names; still suspended."""
        with self._lock:
            self._epoch = epoch
            self._shelves = {name: self._open(shelf.pool) for name, shelf in self._shelves.items()}

    def resume(self) -> None:
        self._suspended = False

    def clear(self) -> None:
        for shelf in list(self._shelves.values()):
            shelf.session.clear()

    def _open(self, pool: P) -> Shelf[P]:
        parts = self._cells(pool)
        for part in parts:
            logger.info("sgkv: pool %s has cell %s (%s)", pool.name, part.namespace.digest, part.namespace)
        if parts:
            self._say_unwritten(pool, parts)
            return Shelf(pool, open_cells(self._store, parts, pool.layout, self.model.producer))
        name = pool_namespace(self._config, self.model, self._rank, pool, self._epoch)
        logger.info("sgkv: pool %s is namespace %s (%s)", pool.name, name.digest, name)
        return Shelf(pool, self._store.open(name, pool.layout, self.model.producer))

    def _cells(self, pool: P) -> list[Cell]:
        """What the fleet's grid makes of a pool; nothing where there is none, or none that fits it.

        Raises ConfigError for one that does not fit the KV itself.
        """
        if not gridded(self._config) or pool.layout.order is Order.OPAQUE:
            return []
        held = share(self._rank, pool, partial(kv_heads, pool.name))
        config, model, epoch = self._config, self.model, self._epoch
        try:
            return cells(config, model, epoch, pool=pool.name, layout=pool.layout, share=held)
        except ConfigError as error:
            if pool.name == _KV:
                raise
            logger.warning("sgkv: servers of other sizes do not share pool %s: %s", pool.name, error)
            return []

    def _say_unwritten(self, pool: P, parts: Sequence[Cell]) -> None:
        if not self._store.shared and not all(part.writes for part in parts):
            logger.warning(
                "sgkv: the kv heads of this rank in pool %s are stored by another rank alone and no tier is "
                "seen by both, so nothing is found: add a disk tier.",
                pool.name,
            )

    def say_unseen(self, pool: PlacedPool) -> None:
        """What the rule that one rank writes a replicated pool leaves without hits."""
        alone = self._rank.tp_size == 1 or not replicated(self._rank, pool)
        if alone or self._store.shared:
            return
        logger.warning(
            "sgkv: pool %s is stored by the first rank alone and no tier is seen by the others, so nothing "
            "is found: add a disk tier.",
            pool.name,
        )


class HostShelves(Shelves[HostPool]):
    """The host pools that HiCache registers."""

    logical_anchor = False
    """Whether the anchor only hands out indices, and other pools have the bytes."""

    def add(self, pool: Any, name: str) -> None:
        """Register a host pool. One that cannot describe its pages is said once and always misses."""
        if is_logical(pool):
            self.logical_anchor = self.logical_anchor or name == _KV
            return
        known = self._shelves.get(name)
        if known is not None and known.pool.pool is pool:  # SGLang registers its anchor under both interfaces
            return
        try:
            host = HostPool(pool, name, self.model.kv_cache_dtype)
        except (AttributeError, ValueError, TypeError, NotImplementedError, AssertionError) as error:
            logger.warning(
                "sgkv: pool %s (%s, layout %s) cannot be stored: %s. It is recomputed instead.",
                name, type(pool).__name__, getattr(pool, "layout", "unknown"), error,
            )  # fmt: skip
            return
        self._say_doubts(host)
        for memory in host.memory:
            self._store.register_memory(*memory)
        self.place(host)

    def _say_doubts(self, pool: HostPool) -> None:
        """What SGLang's rule that one rank of a rank-replicated model writes leaves without hits."""
        several = self._rank.is_mla_model and self._rank.tp_size > 1
        if replicated(self._rank, pool):
            self.say_unseen(pool)
        elif several and pool.name != "mamba":  # which every rank backs up
            logger.warning(
                "sgkv: pool %s differs from rank to rank, but SGLang backs it up on the first rank alone, so "
                "prefixes that need it are not found.",
                pool.name,
            )
