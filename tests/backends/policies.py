"""What every eviction policy keeps to; each subclasses it with a fixture."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgkv.backends.eviction import EvictionPolicy

KEYS = [f"k{number}" for number in range(12)]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "cold", "touch", "reorder", "remove", "look"]),
        st.sampled_from(KEYS),
        st.one_of(st.none(), st.sampled_from(KEYS)),
        st.integers(1, 9),
    ),
    max_size=150,
)


class PolicyTests:
    """The contract of `EvictionPolicy`."""

    def make(self) -> EvictionPolicy:
        raise NotImplementedError

    @pytest.fixture
    def policy(self) -> EvictionPolicy:
        return self.make()

    def test_nothing_goes_from_nothing(self, policy: EvictionPolicy) -> None:
        assert policy.victims(3) == []

    def test_unknown_keys_are_ignored(self, policy: EvictionPolicy) -> None:
        policy.touch(["unknown"])
        policy.reorder(["unknown"])
        policy.remove("unknown")
        assert policy.victims(3) == []

    def test_what_was_never_used_goes_in_the_order_of_arrival(self, policy: EvictionPolicy) -> None:
        for key in KEYS:
            policy.admit(key, 1)
        assert policy.victims(2) == KEYS[:2]

    def test_the_cold_goes_first(self, policy: EvictionPolicy) -> None:
        policy.admit("warm", 1)
        policy.admit("cold", 1, cold=True)
        policy.admit("colder", 1, cold=True)
        assert policy.victims(3) == ["colder", "cold", "warm"]

    def test_looking_changes_nothing(self, policy: EvictionPolicy) -> None:
        for key in KEYS:
            policy.admit(key, 1)
        policy.touch(KEYS[:5])
        assert policy.victims(1) == policy.victims(1) == policy.victims(12)[:1]

    # One test for several classes, each with a database entry of its own.
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(actions=ACTIONS)
    def test_every_key_that_is_there_may_go_once_and_no_other(self, actions) -> None:
        policy, there = self.make(), set[str]()
        for action, key, after, size in actions:
            if action in ("admit", "cold"):
                if key not in there:
                    policy.admit(key, size, cold=action == "cold", after=None if after == key else after)
                    there.add(key)
            elif action == "touch":
                policy.touch([key])
            elif action == "reorder":
                policy.reorder([key])
            elif action == "remove":
                policy.remove(key)
                there.discard(key)
            else:
                policy.victims(1)
            assert len(policy.victims(3)) == min(3, len(there))
        order = policy.victims(1000)
        assert len(order) == len(there)
        assert set(order) == there
