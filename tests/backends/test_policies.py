"""Eviction policies: the contract, and what each of them promises beyond it."""

from __future__ import annotations

from collections import OrderedDict
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from sgkv.backends.eviction import EvictionPolicy, Lru, Reuse, S3Fifo
from tests.backends.policies import PolicyTests


def hits(policy: EvictionPolicy, stream: list[str], room: int, tick=lambda: None) -> int:
    """Uses of what is there, with `room` keys of one byte."""
    there, found = set[str](), 0
    for key in stream:
        tick()
        if key in there:
            found += 1
            policy.touch([key])
            continue
        if len(there) == room:
            (victim,) = policy.victims(1)
            policy.remove(victim)
            there.remove(victim)
        policy.admit(key, 1)
        there.add(key)
    return found


class TestLru(PolicyTests):
    def make(self) -> EvictionPolicy:
        return Lru()

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.integers(0, 15), max_size=200), st.integers(1, 8))
    def test_it_is_the_least_recently_used(self, numbers, room) -> None:
        stream = [f"{number}" for number in numbers]
        model, found = OrderedDict[str, None](), 0
        for key in stream:
            if key in model:
                found += 1
            elif len(model) == room:
                model.popitem(last=False)
            model[key] = None
            model.move_to_end(key)
        assert hits(Lru(), stream, room) == found

    def test_a_chain_read_from_its_end_goes_from_its_end(self) -> None:
        policy = Lru()
        chain = ["a", "b", "c"]
        for key, after in zip(chain, [None, *chain], strict=False):
            policy.admit(key, 1, after=after)
        policy.reorder(chain[::-1])
        assert policy.victims(3) == ["c", "b", "a"]


class ReferenceS3Fifo:
    """Algorithm 1 of the paper, word for word, for keys of one byte: only the test's own."""

    def __init__(self, room: int) -> None:
        self.room, self.small, self.main, self.ghost = room, [], [], []
        self.freq: dict[str, int] = {}

    def read(self, key: str) -> bool:
        if key in self.freq:
            self.freq[key] = min(self.freq[key] + 1, 3)
            return True
        while len(self.freq) >= self.room:
            self.evict()
        if key in self.ghost:
            self.ghost.remove(key)
            self.main.append(key)
        else:
            self.small.append(key)
        self.freq[key] = 0
        return False

    def evict(self) -> None:
        if self.small and (len(self.small) >= 0.1 * self.room or not self.main):
            self.evict_small()
        else:
            self.evict_main()

    def evict_small(self) -> None:
        key = self.small.pop(0)
        if self.freq[key] > 1:
            self.main.append(key)
            self.freq[key] = 0
            return
        del self.freq[key]
        self.ghost.append(key)
        while len(self.ghost) > 0.9 * len(self.freq):
            self.ghost.pop(0)

    def evict_main(self) -> None:
        key = self.main.pop(0)
        if self.freq[key] > 0:
            self.freq[key] -= 1
            self.main.append(key)
        else:
            del self.freq[key]


class TestS3Fifo(PolicyTests):
    def make(self) -> EvictionPolicy:
        return S3Fifo()

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.integers(0, 60), max_size=400), st.integers(2, 30))
    def test_it_is_the_published_algorithm(self, numbers, room) -> None:
        stream = [f"{number}" for number in numbers]
        reference = ReferenceS3Fifo(room)
        assert hits(S3Fifo(), stream, room) == sum(map(reference.read, stream))

    def test_a_scan_of_what_is_used_once_does_not_drive_out_what_is_used(self) -> None:
        policy = S3Fifo()
        hot = [f"hot{number}" for number in range(50)]
        scan = [f"scan{number}" for number in range(500)]
        hits(policy, hot * 4 + scan, 100)
        left = set(policy.victims(1000))
        assert set(hot) <= left

    def test_to_reorder_is_no_use(self) -> None:
        policy = S3Fifo()
        policy.admit("a", 1)
        policy.admit("b", 1)
        policy.reorder(["a"] * 3)
        assert policy.victims(1) == ["a"]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def tick(self) -> None:
        self.now += 1.0


class TestReuse(PolicyTests):
    def make(self) -> EvictionPolicy:
        return Reuse(Clock())

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.integers(0, 11), min_size=1, max_size=12, unique=True), st.randoms())
    def test_no_blob_goes_before_one_that_continues_it(self, numbers, random) -> None:
        clock, parents = Clock(), dict[str, str | None]()
        policy = Reuse(clock)
        for number in range(40):
            clock.now += random.random() * 30
            after = random.choice([None, *parents])
            parents[f"{number}"] = after
            policy.admit(f"{number}", random.randint(1, 3), after=after)
            policy.touch(random.sample(sorted(parents), min(3, len(parents))))
        order = policy.victims(1000)
        place = {key: at for at, key in enumerate(order)}
        assert len(place) == len(parents)
        assert all(place[key] < place[after] for key, after in parents.items() if after is not None)
        for _ in order:  # one by one it is the same promise
            (victim,) = policy.victims(1)
            assert victim not in {after for other, after in parents.items() if other != victim}
            policy.remove(victim)
            del parents[victim]

    def test_before_it_has_learned_anything_it_is_lru(self) -> None:
        clock, random = Clock(), Random(1)
        stream = [f"{random.randint(0, 15)}" for _ in range(60)]
        assert hits(Reuse(clock), stream, 8) >= 0.8 * hits(Lru(), stream, 8)

    def test_what_comes_back_after_a_while_outlives_what_never_does(self) -> None:
        """A loop that is a little too long for LRU, with blobs between that are used once."""
        clock = Clock()
        stream = [key for turn in range(60) for n in range(60) for key in (f"loop{n}", f"once{turn}.{n}")]
        ours = hits(Reuse(clock), stream, 80, clock.tick)
        assert hits(Lru(), stream, 80) == 0
        assert ours > 0.3 * len(stream) / 2

    def test_it_holds_no_more_than_it_may(self) -> None:
        clock = Clock()
        policy = Reuse(clock)
        hits(policy, [f"{number}" for number in range(20_000)], 100, clock.tick)
        assert len(policy._ghosts) <= 200
        assert len(policy._segments._at) <= 300
        assert len(policy._lineage._facts) <= 300
        assert len(policy._segments._by_number) < 400
