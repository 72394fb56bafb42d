"""The edge where our own failures become results: contained, counted, and said without a flood."""

import logging

import pytest

from sgkv import boundary
from sgkv.boundary import contained
from sgkv.counters import Counters


def test_a_thousand_errors_that_differ_in_their_text_are_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    throttle, counters = boundary._Throttle(), Counters()
    monkeypatch.setattr(boundary, "_throttle", throttle)
    with caplog.at_level(logging.ERROR, "sgkv"):
        for slot in range(1000):
            with contained("reading pages", counters):
                raise ValueError(f"slot {slot} is not in the pool")
        with contained("reading pages", counters):
            raise KeyError("another kind")
        with contained("storing pages", counters):
            raise ValueError("another place")
    assert counters.get("internal_errors") == 1002
    assert len(caplog.records) == 3
    assert len(throttle._seen) == 3
