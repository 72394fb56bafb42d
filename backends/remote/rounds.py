"""Work that is done at once, then every so often, and whenever it is asked for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Rounds:
    """One thread that does rounds of `work`, one at a time, and goes on whatever becomes of one."""

    def __init__(self, work: Callable[[], None], *, pause: float | None, name: str) -> None:
        """`pause` seconds between two rounds, None is no round at all; `name` is the thread's."""
        self._work = work
        self._pause = pause
        self._changed = threading.Condition()
        self._done = 0
        self._asked = 1
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; until then nothing is done, and `wait` waits."""
        if self._pause is not None:
            self._thread.start()

    @property
    def closing(self) -> bool:
        """Whether a round under way should come to an end."""
        return self._closing

    def wait(self, timeout: float) -> bool:
        """Until the first round has ended, however it did; False after `timeout` s, or if there is none."""
        if self._pause is None:
            return False
        with self._changed:
            return self._changed.wait_for(lambda: self._done > 0 or self._closing, timeout)

    def ask(self) -> int:
        """Have a round begin soon, and do not wait for it; the number of that round."""
        with self._changed:
            self._asked += 1
            self._changed.notify_all()
            return self._asked

    def again(self, timeout: float) -> bool:
        """A round that begins now, to its end; False after `timeout` seconds, or where there is none."""
        if self._pause is None:
            return False
        goal = self.ask()
        with self._changed:
            return self._changed.wait_for(lambda: self._done >= goal or self._closing, timeout)

    def close(self, timeout: float) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._asked > self._done, self._pause)
                if self._closing:
                    return
                goal = max(self._asked, self._done + 1)
            self._round()
            with self._changed:
                self._done, self._asked = goal, max(goal, self._asked)
                self._changed.notify_all()

    def _round(self) -> None:
        try:
            self._work()
        except Exception:
            log.exception("%s: a round failed", self._thread.name)
