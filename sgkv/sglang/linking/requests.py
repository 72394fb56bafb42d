"""The requests that SGLang considers, from their first lookup until they are loaded or given up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from sglang.srt.mem_cache.hicache_storage import PoolTransfer

from sgkv.backends.deadline import Deadline
from sgkv.counters import Counters
from sgkv.sglang.linking.lookups import Restorable, look_up
from sgkv.sglang.linking.pools import KV
from sgkv.sglang.linking.transfers import LinkedShelves, kv_keys
from sgkv.sglang.shelves import Shelf
from sgkv.store.base import PageSession
from sgkv.transfer.ahead import ReadAhead

_REMEMBERED = 512
"""Requests; SGLang loads what it has just looked up, or in one of its next steps."""
_FRUITLESS_SECONDS = 0.25
"""For which a prompt of which nothing is there is not looked up again: a hundred of them may wait, and each
step of the scheduler asks for every one (``--schedule-policy lpm``)."""
_MOST_FRUITLESS = 4096
_PATIENCE = 0.002
"""Seconds of one step of the scheduler for a read that is about to end."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A lookup that found something."""

    keys: Sequence[str]
    before: Sequence[str] | None
    answer: Restorable
    failures: int
    """Pages that were known to be unreadable then."""
    stands: Deadline
    """Until then an answer of nothing is not looked up again."""


@dataclass(frozen=True, slots=True)
class _Fruitless:
    """A lookup that found nothing."""

    keys: Sequence[str]
    session: PageSession
    stands: Deadline


class Requests:
    """Answers lookups, and begins to read what was found below the cpu tier. Scheduler thread."""

    def __init__(
        self,
        shelves: LinkedShelves,
        ahead: ReadAhead,
        counters: Counters,
        *,
        exists_deadline: float,
        get_deadline: float,
    ) -> None:
        """Deadlines in seconds: of one lookup, and of reading for one request."""
        self._shelves = shelves
        self._ahead = ahead
        self._counters = counters
        self._exists_deadline, self._get_deadline = exists_deadline, get_deadline
        self._asked: OrderedDict[str, _Asked] = OrderedDict()
        self._fruitless: OrderedDict[str, _Fruitless] = OrderedDict()

    def look_up(
        self, rid: str, transfers: Sequence[PoolTransfer], before: Sequence[str] | None
    ) -> Sequence[int]:
        """The prefix lengths that can be restored.

        SGLang asks again in every step in which the request is considered. While pages are read for it
        the answer stays, unless one of them turns out to be unreadable.
        """
        keys, early, asked = kv_keys(transfers), self._ahead.get(rid), self._asked.get(rid)
        if self._is_fruitless(rid, keys):
            return ()
        known = asked if asked is not None and self._same(asked, keys) else None
        if known is not None and not known.answer.lengths and not known.stands.over:
            return ()
        failures = early.failures if early is not None else 0
        if early is not None and known is not None:
            if failures == known.failures:
                return _up_to(len(keys), known.answer)
            keys_asked, answer = known.keys, known.answer.without(early)
        else:
            known, keys_asked = None, keys
            answer = look_up(transfers, before, self._shelves, Deadline(self._exists_deadline))
            self._counters.lookup(answer.asked, answer.pages, answer.reason)
        if answer.lengths:
            self._ahead.begin(rid, answer.wanted, self._get_deadline)
        else:
            self.forget(rid)
        if answer.lengths or known is not None:
            stands = Deadline(self._get_deadline)
            self._remember(rid, _Asked(keys_asked, before, answer, failures, stands))
        elif answer.demands:
            self._note_fruitless(
                rid, _Fruitless(keys, answer.demands[-1].session, Deadline(_FRUITLESS_SECONDS))
            )
        return _up_to(len(keys), answer)

    def before(self, rid: str) -> Sequence[str] | None:
        """The hashes before the pages that were looked up last; None where nobody said."""
        asked = self._asked.get(rid)
        return asked.before if asked is not None else None

    def unsettled(self, rid: str) -> bool:
        """Whether pages are being read, or a new lookup would answer less; waits a moment for the former."""
        early, asked = self._ahead.get(rid), self._asked.get(rid)
        if early is None or asked is None:
            return False
        return not early.settled(_PATIENCE) or early.failures > asked.failures

    def forget(self, rid: str) -> None:
        """The request was loaded, or will not be: memory that nobody took is free."""
        self._asked.pop(rid, None)
        self._fruitless.pop(rid, None)
        self._ahead.drop(rid)

    def reset(self) -> None:
        self._asked.clear()
        self._fruitless.clear()
        self._ahead.reset()

    def _same(self, asked: _Asked, keys: Sequence[str]) -> bool:
        """Whether this was asked before, of the same weights.

        Where a step looks up twice, one of the two leaves out the last page of some prompts.
        """
        shelf = self._shelves.usable(KV)
        session = asked.answer.demands[-1].session
        return isinstance(shelf, Shelf) and shelf.session is session and keys == asked.keys[: len(keys)]

    def _is_fruitless(self, rid: str, keys: Sequence[str]) -> bool:
        known, shelf = self._fruitless.get(rid), self._shelves.usable(KV)
        if (
            known is None
            or known.stands.over
            or not isinstance(shelf, Shelf)
            or shelf.session is not known.session
        ):
            return False
        return keys == known.keys[: len(keys)]

    def _note_fruitless(self, rid: str, known: _Fruitless) -> None:
        self._fruitless[rid] = known
        self._fruitless.move_to_end(rid)
        if len(self._fruitless) > _MOST_FRUITLESS:
            self._fruitless.popitem(last=False)

    def _remember(self, rid: str, asked: _Asked) -> None:
        self._asked[rid] = asked
        self._asked.move_to_end(rid)
        if len(self._asked) > _REMEMBERED:
            self.forget(next(iter(self._asked)))


def _up_to(pages: int, answer: Restorable) -> Sequence[int]:
    """The restorable lengths of the first `pages`."""
    return [length for length in answer.lengths if length <= pages]
