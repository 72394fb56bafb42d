"""An engine's way to the daemon: connections as they are needed, and what happens while it is away."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sgkv.backends.base import Bound
from sgkv.backends.deadline import Deadline
from sgkv.boundary import contained
from sgkv.counters import Counters
from sgkv.node.lane import Lane, Memory, RefusedError
from sgkv.node.wire import WireError
from sgkv.reasons import MissReason

logger = logging.getLogger("sgkv")

_FIRST_PAUSE = 0.05
_HELLO_SECONDS = 1.0
_LANES = 64
"""Calls under way at once; past it they are misses."""
_SILENCES = 2
"""Calls in a row without an answer after which the daemon counts as away."""
_LONGEST = 60.0
_MARGIN, _MOST_MARGIN = 0.1, 0.05
"""Share of a call's time, and seconds at most, between the daemon's deadline and ours: for its answer."""

T = TypeVar("T")


class Link:
    """Calls the daemon for any number of threads. No call outlasts its deadline, but see `Lane.fence`.

    A call borrows an idle connection, or makes one; one that failed is closed, which gives back all that
    it held in the daemon. While the daemon is away calls are misses at once, and one thread tries to
    reach it, with growing pauses, until it is back.
    """

    def __init__(self, path: Path, token: str, longest_pause: float, counters: Counters) -> None:
        self._path = path
        self._token = token
        self._longest_pause = longest_pause
        self._counters = counters
        self._lock = threading.Lock()
        self._idle: list[Lane] = []
        self._busy = 0
        self._silences = 0
        self._away = False
        self._closing = threading.Event()
        self._memory: Memory | None = None
        self._said: set[str] = set()

    @property
    def away(self) -> bool:
        return self._away

    def bounds(self) -> dict[str, Bound]:
        with self._lock:
            return {"node_connections": Bound(self._busy + len(self._idle), _LANES)}

    def call(self, work: Callable[[Lane, float], T], deadline: Deadline) -> T | MissReason:
        """What `work` makes of a connection, or why there is no answer.

        `work` is given the moment at which we stop waiting. The one place where trouble with the daemon
        becomes a reason.
        """
        until = time.monotonic() + min(_LONGEST, _or(deadline.remaining(), _LONGEST))
        if self._closing.is_set():
            return MissReason.CLOSED
        if deadline.over:
            return MissReason.TIMEOUT
        if self._away or not self._begin():
            return MissReason.NODE_AWAY if self._away else MissReason.TIMEOUT
        lane: Lane | None = None
        try:
            lane = self._take() or self._connect(until)
            result = work(lane, until)
        except RefusedError as error:
            return self._refused(lane, error)
        except TimeoutError:
            return self._silent(lane)
        except (WireError, OSError) as error:
            return self._lost(lane, error)
        except BaseException:
            if lane is not None:
                lane.close()
            raise
        else:
            self._give_back(lane)
            return result
        finally:
            with self._lock:
                self._busy -= 1

    def memory(self, lane: Lane) -> Memory:
        """The arena that places on this lane refer to. Raises WireError where that is gone already."""
        memory = self._memory
        if memory is None or memory.instance != lane.welcome.instance:
            raise WireError("the daemon was replaced")
        return memory

    def close(self) -> None:
        """End every idle connection; calls under way end theirs."""
        self._closing.set()
        with self._lock:
            idle, self._idle = self._idle, []
            memory, self._memory = self._memory, None
        for lane in idle:
            lane.close()
        if memory is not None:
            memory.close()

    def _begin(self) -> bool:
        with self._lock:
            if self._busy >= _LANES:
                return False
            self._busy += 1
            return True

    def _take(self) -> Lane | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _connect(self, until: float) -> Lane:
        lane = Lane(self._path, self._token, until)
        with self._lock:
            known = self._memory is not None and self._memory.instance == lane.welcome.instance
            if known or self._closing.is_set():
                os.close(lane.descriptor)
            else:
                before, self._memory = self._memory, Memory(lane.welcome, lane.descriptor)
                if before is not None:
                    before.close()
        return lane

    def _give_back(self, lane: Lane) -> None:
        self._silences = 0
        with self._lock:
            keep = lane.settled and not (self._closing.is_set() or self._away or lane.crowded)
            if keep:
                self._idle.append(lane)
        if not keep:
            lane.close()

    def _refused(self, lane: Lane | None, error: RefusedError) -> MissReason:
        """The daemon is well and will not do this; the same refusal is logged once."""
        if str(error) not in self._said:
            self._said.add(str(error))
            logger.warning("sgkv: the daemon at %s refuses: %s", self._path, error)
        if lane is not None:
            self._give_back(lane)
        elif not self._has_others():
            self._leave()  # it may be told otherwise, and reload
        return MissReason.NODE_AWAY

    def _has_others(self) -> bool:
        """Whether connections beside the one that was refused are open: then there are only too many."""
        with self._lock:
            return bool(self._idle) or self._busy > 1

    def _silent(self, lane: Lane | None) -> MissReason:
        """No answer in time. Twice in a row is more than one slow call."""
        if lane is not None:
            lane.close()
        self._counters.add("node_silences")
        with self._lock:
            self._silences += 1
            gone = self._silences >= _SILENCES
        if gone:
            self._leave()
        return MissReason.TIMEOUT

    def _lost(self, lane: Lane | None, error: Exception) -> MissReason:
        if lane is not None:
            lane.close()
        if not self._closing.is_set() and not self._away:
            logger.warning(
                "sgkv: the daemon at %s is away (%s); nothing is stored or found until it is back",
                self._path, error or type(error).__name__,
            )  # fmt: skip
        self._leave()
        return MissReason.CLOSED if self._closing.is_set() else MissReason.NODE_AWAY

    def _leave(self) -> None:
        """From now on calls are misses; one thread looks out for the daemon."""
        with self._lock:
            if self._away or self._closing.is_set():
                return
            self._away = True
            idle, self._idle = self._idle, []
        self._counters.add("node_lost")
        for lane in idle:
            lane.close()
        threading.Thread(target=self._look_out, name="sgkv-node-lookout", daemon=True).start()

    def _look_out(self) -> None:
        pause = _FIRST_PAUSE
        with contained("reaching the node's daemon", self._counters):
            while not self._closing.wait(pause):
                lane = self._try_again()
                if lane is not None:
                    self._come_back(lane)
                    return
                pause = min(2 * pause, self._longest_pause)

    def _try_again(self) -> Lane | None:
        try:
            return self._connect(time.monotonic() + _HELLO_SECONDS)
        except (RefusedError, WireError, OSError):
            return None

    def _come_back(self, lane: Lane) -> None:
        with self._lock:
            self._away = False
        self._give_back(lane)
        logger.warning("sgkv: the daemon at %s is back", self._path)


def answer_by(until: float) -> float:
    """When the daemon has to have answered so that the answer is here by `until`."""
    return until - min(_MOST_MARGIN, _MARGIN * max(0.0, until - time.monotonic()))


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
