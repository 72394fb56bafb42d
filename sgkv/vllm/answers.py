"""What the scheduler is told about chunks: at once from memory, never by asking a tier."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from typing import Any

from vllm.v1.kv_offload.base import LookupResult

HIT, MISS, RETRY = LookupResult.HIT, LookupResult.MISS, LookupResult.RETRY

MAX_LOADS = 3
"""Loads of one chunk for one request. vLLM asks again while its host memory is too small to keep what was
loaded until the request can use it; past this the chunk is computed."""

Ask = Callable[[Any, Sequence[bytes]], bool]
"""Begin a lookup for (request context, keys); False where that is not possible now."""


class Answers:
    """One answer a key, kept while a request that asked for it lives. Scheduler thread, but for `publish`.

    A key is asked for once; until the answer is there the scheduler hears RETRY, and asks again with its
    next step. A failed load turns HIT into MISS for good, because vLLM would promote it again and again.
    """

    def __init__(self, ask: Ask) -> None:
        self.known: dict[bytes, LookupResult] = {}
        """The answers; the same dictionary for good."""
        self._ask = ask
        self._asked: dict[str, tuple[Any, list[bytes]]] = {}
        """By request: what has not been handed to `ask` yet."""
        self._owned: dict[str, list[bytes]] = {}
        self._loads: dict[bytes, int] = {}
        self._published: queue.SimpleQueue[dict[bytes, LookupResult]] = queue.SimpleQueue()

    def ask(self, key: bytes, req_context: Any) -> LookupResult:
        """RETRY for a key that is not in `known`, and a note for the next `flush`."""
        self.known[key] = RETRY
        entry = self._asked.get(req_context.req_id)
        if entry is None:
            entry = self._asked[req_context.req_id] = (req_context, [])
        entry[1].append(key)
        return RETRY

    def flush(self) -> None:
        """Hand over what was asked for in this step, one batch a request."""
        asked, self._asked = self._asked, {}
        for request, (context, keys) in asked.items():
            self._owned.setdefault(request, []).extend(keys)
            if not self._ask(context, keys):
                self.known.update(dict.fromkeys(keys, MISS))

    def publish(self, answers: dict[bytes, LookupResult]) -> None:
        """Any thread: answers that the scheduler gets with its next step."""
        self._published.put(answers)

    def collect(self) -> None:
        """Take over what was published; answers to requests that have ended are dropped."""
        while not self._published.empty():
            answers = self._published.get()
            self.known.update({key: answer for key, answer in answers.items() if key in self.known})

    def loading(self, keys: Sequence[bytes]) -> None:
        """These are being loaded, perhaps not for the first time."""
        for key in keys:
            loads = self._loads[key] = self._loads.get(key, 0) + 1
            if loads >= MAX_LOADS:
                self.known[key] = MISS

    def failed(self, keys: Sequence[bytes]) -> None:
        """Loads of these failed: a miss for every request that lives now."""
        self.known.update(dict.fromkeys(keys, MISS))

    def forget(self, request: str) -> None:
        """The request has ended: what it asked for is looked up anew next time."""
        _, asked = self._asked.pop(request, (None, []))
        for key in (*asked, *self._owned.pop(request, ())):
            self.known.pop(key, None)
            self._loads.pop(key, None)

    def clear(self) -> None:
        """Forget every answer; requests that wait ask again."""
        self.known.clear()
        self._asked.clear()
        self._owned.clear()
        self._loads.clear()
        self.collect()
