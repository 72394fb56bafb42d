"""What the scheduler has asked the workers about a request, and what it is told meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from sgkv.vllm.chains import Chain
from sgkv.vllm.connecting.messages import Answer, Lookup

_FIRST_PAUSE = 0.02
"""Seconds until pages that a prefill announced are looked for again; twice as long each time."""
_NOTHING = Answer(0)


@dataclass(slots=True)
class _Question:
    number: int
    first: int
    began: float
    """When the request was first asked about."""
    asked: float
    attempt: int = 0
    heard: Answer | None = None
    """Of the ranks that have answered."""
    answer: Answer | None = None
    """Of all ranks."""
    again: float = 0.0
    """When it may be asked anew, where the answer is shorter than was announced."""


class Questions:
    """At most one question a request. Scheduler thread.

    An answer is kept until the request has used it. One that does not come within `patience` seconds is
    "nothing", so that a worker that hangs costs a request no more than that.
    """

    def __init__(
        self, ranks: int, patience: float, delivery: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`ranks` answer each question. `delivery` is how long announced pages are waited for."""
        self._ranks = ranks
        self._patience = patience
        self._delivery = delivery
        self._clock = clock
        self._numbers = count(1)
        self._of: dict[str, _Question] = {}
        self._open: dict[int, _Question] = {}
        self._lookups: list[Lookup] = []

    def answer(
        self, request: str, chain: Chain, first: int, stop: int, announced: int = 0
    ) -> tuple[int, Answer] | None:
        """(the page that the answer counts from, at most `first`; the answer), or None until there is one.

        `first` to `stop` are the pages of the request that it could use, of which another engine may have
        `announced` that it is storing them.
        """
        question = self._of.get(request)
        if question is None or question.first > first:
            self._ask(request, chain, first, stop)
            return None
        now = self._clock()
        if question.answer is None and now - question.asked >= self._patience:
            self._settle(question, _NOTHING)
        answer = question.answer
        if answer is None:
            return None
        if question.first + answer.pages < min(announced, stop) and now < question.began + self._delivery:
            if now >= question.again:
                self._ask(request, chain, first, stop)
            return None
        return question.first, answer

    def told(self, answers: dict[int, Answer]) -> None:
        """Of one step, each from one rank or several."""
        for number, answer in answers.items():
            question = self._open.get(number)
            if question is not None:
                heard = answer if question.heard is None else question.heard | answer
                question.heard = heard
                if heard.ranks >= self._ranks:
                    self._settle(question, heard)

    def drop(self, request: str) -> bool:
        """Forget what was asked; whether workers may hold pages for it."""
        question = self._of.pop(request, None)
        if question is None:
            return False
        self._open.pop(question.number, None)
        return True

    def take(self) -> list[Lookup]:
        """Questions of this step."""
        lookups, self._lookups = self._lookups, []
        return [lookup for lookup in lookups if lookup.number in self._open]

    def clear(self) -> None:
        for request in list(self._of):
            self.drop(request)

    def _ask(self, request: str, chain: Chain, first: int, stop: int) -> None:
        now, before = self._clock(), self._of.get(request)
        question = _Question(next(self._numbers), first, now, now)
        if before is not None:
            self._open.pop(before.number, None)
            question.began, question.attempt = before.began, before.attempt + 1
        self._of[request] = self._open[question.number] = question
        hashes = chain.pages(stop)
        self._lookups.append(Lookup(question.number, request, hashes[:first], hashes[first:]))

    def _settle(self, question: _Question, answer: Answer) -> None:
        question.answer, question.again = answer, self._clock() + _FIRST_PAUSE * 2**question.attempt
        self._open.pop(question.number, None)
