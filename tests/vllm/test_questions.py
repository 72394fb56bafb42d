"""What the scheduler's side asks and remembers, and which saves it gives up."""

from __future__ import annotations

from collections import Counter

from sgkv.vllm.chains import Chain
from sgkv.vllm.connecting.messages import Answer, Pages, Save
from sgkv.vllm.connecting.pending import PendingSaves
from sgkv.vllm.connecting.questions import Questions

PAGE = 4
CHAIN = Chain(list(range(40 * PAGE)), None, PAGE)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def questions(ranks: int = 1) -> tuple[Questions, Clock]:
    clock = Clock()
    return Questions(ranks, patience=1.0, delivery=10.0, clock=clock), clock


def test_a_question_is_asked_once_and_its_answer_kept_until_it_is_dropped() -> None:
    asked, _ = questions()
    assert asked.answer("a", CHAIN, 2, 8) is None
    assert asked.answer("a", CHAIN, 2, 8) is None
    (lookup,) = asked.take()
    assert [*lookup.before, *lookup.hashes] == CHAIN.pages(8)
    assert len(lookup.before) == 2
    asked.told({lookup.number: Answer(5)})
    assert asked.answer("a", CHAIN, 2, 8) == (2, Answer(5))
    assert asked.answer("a", CHAIN, 3, 8) == (2, Answer(5))  # vLLM has more itself by now
    assert asked.take() == []
    assert asked.drop("a")
    assert not asked.drop("a")
    assert asked.answer("a", CHAIN, 2, 8) is None


def test_pages_that_vllm_has_lost_meanwhile_are_asked_for_anew() -> None:
    asked, _ = questions()
    asked.answer("a", CHAIN, 4, 8)
    (lookup,) = asked.take()
    asked.told({lookup.number: Answer(4)})
    assert asked.answer("a", CHAIN, 3, 8) is None
    (again,) = asked.take()
    asked.told({lookup.number: Answer(4)})  # late, and of the question before
    assert asked.answer("a", CHAIN, 3, 8) is None
    asked.told({again.number: Answer(1)})
    assert asked.answer("a", CHAIN, 3, 8) == (3, Answer(1))


def test_every_rank_answers_and_the_shortest_answer_counts() -> None:
    asked, _ = questions(ranks=3)
    asked.answer("a", CHAIN, 0, 8)
    (lookup,) = asked.take()
    asked.told({lookup.number: Answer(8, 8, held=True)})
    assert asked.answer("a", CHAIN, 0, 8) is None
    asked.told({lookup.number: Answer(6, 6, held=True) | Answer(8, 8, held=True)})
    assert asked.answer("a", CHAIN, 0, 8) == (0, Answer(6, 6, held=False, ranks=3))


def test_an_answer_that_does_not_come_is_nothing() -> None:
    asked, clock = questions()
    asked.answer("a", CHAIN, 0, 8)
    clock.now = 0.9
    assert asked.answer("a", CHAIN, 0, 8) is None
    clock.now = 1.0
    assert asked.answer("a", CHAIN, 0, 8) == (0, Answer(0))


def test_announced_pages_are_looked_for_again_and_not_for_ever() -> None:
    asked, clock = questions()
    looks, found = 0, None
    while found is None:
        found = asked.answer("a", CHAIN, 0, 8, announced=8)
        for lookup in asked.take():
            looks += 1
            asked.told({lookup.number: Answer(2)})
        clock.now += 0.01
    assert found == (0, Answer(2))
    assert clock.now >= 10.0
    assert looks < 15
    asked.answer("b", CHAIN, 0, 8, announced=8)
    (lookup,) = asked.take()
    asked.told({lookup.number: Answer(8)})
    assert asked.answer("b", CHAIN, 0, 8, announced=8) == (0, Answer(8))


def save(number: int, *tables: list[int]) -> Save:
    return Save(number, Pages("a", [], [], tables))


def test_saves_of_blocks_that_are_written_to_are_named_until_they_have_ended() -> None:
    pending = PendingSaves(ranks=2)
    pending.begin(save(1, [3, 4], [0, 5]))
    pending.begin(save(2, [4, 6], [7, 0]))
    assert pending.overwritten([0, 9]) == []
    assert pending.overwritten([4]) == [1, 2]
    assert pending.overwritten({5, 3}) == [1]
    pending.ended(Counter([1]))
    assert pending.overwritten([3]) == [1]  # the other rank still reads
    pending.ended(Counter([1, 2]))
    assert pending.overwritten([3, 4]) == [2]
    assert pending.numbers() == [2]
    pending.ended(Counter([2]))
    assert pending.numbers() == []
