"""What holds for a store of one's own holds for an attached one: the same tests, over a socket.

The fixtures of this folder stand in for those of `tests/store`. Left out are tests of a store without a cpu
tier, which a daemon must have, and tests that reach into a store of this process.
"""

import pytest

from sgkv.backends.deadline import Deadline
from tests.store.conftest import chain, found_in, layout, namespace, put, random_pages, read
from tests.store.test_session import (  # noqa: F401 - collected here
    test_a_longer_query_hits_its_stored_prefix_and_says_why_it_ends,
    test_another_byte_order_is_converted,
    test_another_identity_never_hits,
    test_any_cut_of_writes_and_reads_gives_the_same_bytes,
    test_clear_forgets_this_namespace_only,
    test_clear_reaches_what_was_still_queued,
    test_existing_pages_count_as_stored_and_keep_their_bytes,
    test_restart_keeps_what_was_on_disk,
    test_round_trip,
    test_when_time_is_up_the_tiers_that_were_not_asked_are_not_to_blame,
    test_without_positions_pages_are_stored_one_by_one_and_found_with_them,
)

pytestmark = pytest.mark.slow


def test_asking_for_what_nobody_has_evicts_nothing(node_rig):
    session = node_rig.store(cpu_bytes=16 * 8192).open(namespace(), layout())
    put(session, chain(4), random_pages(4))
    assert all(read(session, chain(64, 1))[0])
    assert found_in(session, chain(4)).pages == 4


def test_what_was_loaded_into_memory_expires_with_what_it_came_from(node_rig):
    now = [1000.0]
    store = node_rig.store(ttl=100.0, clock=lambda: now[0])
    put(store.open(namespace(), layout()), chain(4), random_pages(4))
    store = node_rig.restart(store, ttl=100.0, clock=lambda: now[0])
    session = store.open(namespace(), layout())
    now[0] += 99
    assert read(session, chain(4))[0] == [None] * 4
    assert store.stats().tiers["cpu"].blobs == 4
    now[0] += 2
    assert all(read(session, chain(4))[0])


def test_what_is_cleared_while_an_earlier_clear_is_under_way_is_cleared_again(node_rig):
    session = node_rig.store().open(namespace(), layout())
    told = []

    class Told:
        def number(self, *_):
            return 0

        def ask(self, request, *_):
            told.append(request)
            if len(told) == 1:
                session.clear()  # by another thread, before it hears that the first is done

    session._link.call = lambda work, _deadline: work(Told(), 0.0) if len(told) != 1 else None
    session.clear()
    assert len(told) == 1
    told.append("a read")
    session._call(lambda _lane, _until: None, Deadline(1))
    assert len(told) == 3
