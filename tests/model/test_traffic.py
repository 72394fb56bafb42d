"""A hundred thousand calls from eight threads, over two stores that fail, on files that rot."""

from itertools import count

import pytest

from tests.model.traffic import play, two_stores

pytestmark = pytest.mark.slow

CALLS = 100_000
THREADS = 8


def test_no_wrong_byte_is_served_under_fire(tmp_path):
    batches = count()
    with two_stores(tmp_path) as stores:
        total = play(stores, tmp_path, THREADS, lambda: next(batches) < CALLS // 50)
        for store in stores:
            assert store.flush(30.0)
        stats = [store.stats() for store in stores]
    assert sum(total.calls.values()) >= CALLS
    assert total.wrong == []
    assert total.served > total.missed / 10, "reads are mostly of what is there"
    assert [tier.leases for one in stats for tier in one.tiers.values()] == [0, 0, 0]
    assert list((tmp_path / "tmp").iterdir()) == []
