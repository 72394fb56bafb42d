"""Which pages lie before those that a decode server stores."""

from sgkv.sglang.decoding import Chains


class Request:
    """As good as one of SGLang's: it can be referred to weakly."""


def test_pages_of_an_answer_follow_the_prompts_and_each_other():
    chains, request = Chains(), Request()
    chains.grow(request, None, ["p0", "p1"])
    chains.grow(request, "p1", ["a0"])
    assert chains.before(["a0"]) == ["p0", "p1"]
    chains.grow(request, "a0", ["a1", "a2"])
    assert chains.before(["a1", "a2"]) == ["p0", "p1", "a0"]


def test_a_prompt_shorter_than_a_page():
    chains, request = Chains(), Request()
    chains.grow(request, "", [])
    chains.grow(request, None, ["a0"])
    assert chains.before(["a0"]) == []


def test_requests_under_way_at_once_and_one_that_begins_anew():
    chains, one, other = Chains(), Request(), Request()
    chains.grow(one, None, ["p0"])
    chains.grow(other, None, ["q0", "q1"])
    chains.grow(one, "p0", ["a0"])
    assert chains.before(["a0"]) == ["p0"]
    chains.grow(one, None, ["p0"])
    chains.grow(one, "p0", ["a0"])
    assert chains.before(["a0"]) == ["p0"]


def test_nothing_is_said_of_other_writes():
    chains, request = Chains(), Request()
    chains.grow(request, None, ["p0"])
    assert chains.before([]) is None
    assert chains.before(["x"]) is None
    assert chains.before(["p0"]) == []
    assert chains.before(["p0"]) is None
