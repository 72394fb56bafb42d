"""A bounded pool of daemon threads, and batches spread over it.

Unlike `concurrent.futures.ThreadPoolExecutor` it refuses work instead of queueing it without
bound, and a thread that hangs in a dead device cannot keep the process from exiting.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from itertools import count

from sgkv.backends.base import Bound
from sgkv.backends.deadline import Deadline

log = logging.getLogger(__name__)

Task = Callable[[], None]


class WorkerPool:
    """Up to `threads` threads, started as they are needed, and `backlog` tasks waiting for one."""

    def __init__(self, threads: int, name: str, *, backlog: int) -> None:
        self.threads = threads
        self._name = name
        self._backlog = backlog
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Future[None], Task] | None] = queue.SimpleQueue()
        self._started: list[threading.Thread] = []
        self._idle = 0
        self._queued = 0
        self._refused = False
        self._closed = False

    def submit(self, task: Task) -> Future[None] | None:
        """Hand a task over; None when every thread is busy and the backlog is full, or when closed.

        Also None where a thread is needed and the system has none to give.
        """
        with self._lock:
            if self._closed:
                return None
            if self._queued >= self._idle and len(self._started) < self.threads:
                self._start()
            if not self._started or self._queued >= self._idle + self._backlog:
                return None
            self._queued += 1
            future: Future[None] = Future()
            self._queue.put((future, task))
        return future

    @property
    def busy(self) -> Bound:
        """Threads with a task, of those there may be."""
        with self._lock:
            return Bound(len(self._started) - self._idle, self.threads)

    def bounds(self, name: str) -> dict[str, Bound]:
        """Threads that were started, and tasks that wait for one, as `{name}_threads` and `{name}_queue`."""
        with self._lock:
            waiting = max(0, self._queued - self._idle)
            return {
                f"{name}_threads": Bound(len(self._started), self.threads),
                f"{name}_queue": Bound(waiting, self._backlog),
            }

    def close(self, timeout: float) -> bool:
        """Finish what was accepted and end the threads; False if some still run after `timeout` s."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for _ in self._started:
                    self._queue.put(None)
        ends = time.monotonic() + timeout
        for thread in self._started:
            thread.join(max(0.0, ends - time.monotonic()))
        return not any(thread.is_alive() for thread in self._started)

    def _start(self) -> None:
        name = f"{self._name}-{len(self._started)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # a limit, or an interpreter that shuts down (Python 3.12)
            if not self._refused:
                self._refused = True
                log.warning("%s did not start: %s (said once)", name, error)
            return
        self._started.append(thread)
        self._idle += 1

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            with self._lock:
                self._idle -= 1
                self._queued -= 1
            tell = _run(*job)
            del job  # an idle thread must not keep the last task's buffers alive
            with self._lock:
                self._idle += 1
            tell()  # only now: who waited for it may submit again at once, and finds this thread idle
            del tell


def _log_failure(future: Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.error("a background task failed", exc_info=error)


def _run(future: Future[None], task: Task) -> Callable[[], None]:
    """Run the task; the returned call tells `future` how it ended."""
    if not future.set_running_or_notify_cancel():
        return lambda: None
    try:
        task()
    except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
        return partial(future.set_exception, error)
    return partial(future.set_result, None)


def in_background(pool: WorkerPool, task: Task) -> Future[None] | None:
    """`submit` for a task nobody waits for: an exception of it is logged."""
    future = pool.submit(task)
    if future is not None:
        future.add_done_callback(_log_failure)
    return future


def spread(pool: WorkerPool, items: int, work: Callable[[int], None], helpers: int) -> None:
    """Call `work(i)` for every `i < items`, in this thread and in up to `helpers` of the pool.

    Returns when all are done, however long that takes; an exception of `work` propagates.
    """
    cursor = count()
    futures = _submit_each(pool, lambda: _drain(cursor, items, work), min(helpers, items - 1))
    try:
        _drain(cursor, items, work)
    finally:
        started = [future for future in futures if not future.cancel()]
        wait(started)
    for future in started:
        future.result()


def spread_until(
    pool: WorkerPool, items: int, work: Callable[[int], None], threads: int, deadline: Deadline
) -> bool:
    """As `spread`, but only in up to `threads` of the pool's, and no longer than `deadline` allows.

    False when time ran out, or no thread would take the work: the deadline is then cancelled, so
    that nothing fills the caller's buffers any more, and work that has not begun never does.
    """
    cursor = count()

    def drain() -> None:
        _drain(cursor, items, lambda at: None if deadline.over else work(at))

    futures = _submit_each(pool, drain, min(threads, items))
    done, late = wait(futures, deadline.remaining())
    for future in late:
        future.cancel()
    complete = not late and bool(futures or not items)
    if not complete:
        deadline.cancel()
    for future in done:
        future.result()
    return complete


def spread_within(
    pool: WorkerPool, items: int, work: Callable[[int], None], threads: int, deadline: Deadline | None
) -> None:
    """`spread_until` where there is a deadline, else `spread`; by `threads` threads either way."""
    if deadline is None:
        spread(pool, items, work, threads - 1)
    else:
        spread_until(pool, items, work, threads, deadline)


def _submit_each(pool: WorkerPool, task: Task, times: int) -> list[Future[None]]:
    futures = (pool.submit(task) for _ in range(times))
    return [future for future in futures if future is not None]


def _drain(cursor: count[int], items: int, work: Callable[[int], None]) -> None:
    at = next(cursor)
    while at < items:
        work(at)
        at = next(cursor)
