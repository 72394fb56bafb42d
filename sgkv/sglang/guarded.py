"""What every method of the engine's interface is wrapped in: errors of ours become its kind of miss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import torch
from sglang.srt.mem_cache.hicache_storage import PoolTransfer

from sgkv.boundary import contained
from sgkv.reasons import MissReason

if TYPE_CHECKING:
    from sgkv.sglang.hicache import SgkvHiCache

P = ParamSpec("P")
T = TypeVar("T")


def guarded(
    what: str,
    fallback: Callable[..., T],
    *,
    reads: bool = False,
    lets: tuple[type[Exception], ...] = (),
) -> Callable[[Callable[Concatenate[SgkvHiCache, P], T]], Callable[Concatenate[SgkvHiCache, P], T]]:
    """A method of the engine's interface: an exception in it is counted and becomes `fallback(...)`.

    `reads` says that its first argument are the pages (or the transfers) that are missed then; errors in
    `lets` are raised.
    """

    def decorate(
        method: Callable[Concatenate[SgkvHiCache, P], T],
    ) -> Callable[Concatenate[SgkvHiCache, P], T]:
        @wraps(method)
        def call(self: SgkvHiCache, /, *args: P.args, **kwargs: P.kwargs) -> T:
            with contained(what, self.store.counters, lets=lets):
                return method(self, *args, **kwargs)
            if reads:
                self.store.counters.misses([MissReason.INTERNAL] * _pages_asked(args[0] if args else ()))
            return fallback(*args, **kwargs)

        return call

    return decorate


# Fallbacks take anything: what a method choked on must not choke them.


def all_false(keys: object = (), *_args: Any, **_kwargs: Any) -> list[bool]:
    return [False] * _count(keys)


def all_none(keys: object = (), *_args: Any, **_kwargs: Any) -> list[torch.Tensor | None]:
    return [None] * _count(keys)


def all_false_by_pool(transfers: object = (), *_args: Any, **_kwargs: Any) -> dict[str, list[bool]]:
    return {t.name: [False] * _count(t.keys) for t in _transfers(transfers)}


def _count(asked: object) -> int:
    return len(asked) if isinstance(asked, Sized) else 0


def _transfers(asked: object) -> list[PoolTransfer]:
    return [t for t in asked if isinstance(t, PoolTransfer)] if isinstance(asked, Iterable) else []


def _pages_asked(asked: object) -> int:
    transfers = _transfers(asked)
    return sum(_count(t.keys) for t in transfers) if transfers else _count(asked)
