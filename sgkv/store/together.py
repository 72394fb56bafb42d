"""Work of several sessions side by side, so that what they ask of a tier is one batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar, cast

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Result = TypeVar("Result")

Steps: TypeAlias = Generator[Sequence[Asked], list[Answer], Result]
"""Yields batches of what it asks, is sent an answer for each of them, and returns what it made of it."""


def together(
    works: Sequence[Steps[Asked, Answer, Result]], call: Callable[[Sequence[Asked]], list[Answer]]
) -> list[Result]:
    """Run `works` to their ends; each round of theirs is one call, whose answers are in the order asked."""
    if len(works) == 1:
        return [_alone(works[0], call)]
    results: dict[int, Result] = {}
    answers: dict[int, list[Answer] | None] = dict.fromkeys(range(len(works)))
    while answers:
        asked: dict[int, Sequence[Asked]] = {}
        for at, answer in answers.items():
            try:
                asked[at] = works[at].send(answer)  # type: ignore[arg-type] # None begins a generator
            except StopIteration as end:
                results[at] = end.value
        answers = dict(_shared_out(asked, call)) if asked else {}
    return [results[at] for at in range(len(works))]


def _alone(work: Steps[Asked, Answer, Result], call: Callable[[Sequence[Asked]], list[Answer]]) -> Result:
    try:
        asked = next(work)
        while True:
            asked = work.send(call(asked))
    except StopIteration as end:
        return cast("Result", end.value)


def _shared_out(
    asked: dict[int, Sequence[Asked]], call: Callable[[Sequence[Asked]], list[Answer]]
) -> Generator[tuple[int, list[Answer]], None, None]:
    answers = call([item for items in asked.values() for item in items])
    start = 0
    for at, items in asked.items():
        yield at, answers[start : start + len(items)]
        start += len(items)
