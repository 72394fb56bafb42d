"""Room in the arena is its engine's until the engine lets go: it may be writing there."""

import time

import pytest

from sgkv.backends.deadline import Deadline
from sgkv.keys import packed_hashes
from sgkv.node import wire
from sgkv.node.framing import ClosedError
from sgkv.node.lane import Lane, RefusedError
from sgkv.node.session import AttachedSession
from sgkv.store.session import Session
from sgkv.store.span import Span
from tests.node.conftest import Pool, spread
from tests.store.conftest import chain, layout, namespace, random_pages

ROOMS = 4


def room(session: int = 0, seed: int = 0) -> wire.Reserve:
    return wire.Reserve(session, 1e18, packed_hashes(chain(ROOMS, seed)), b"")


@pytest.fixture
def node(node_rig):
    return node_rig.node()


@pytest.fixture
def lane(node):
    """A connection that holds room for some pages, as if it were copying."""
    lane = Lane(node.path, "", soon())
    lane.ask(wire.Open(namespace(), layout(), ""), wire.Opened, soon())
    assert len(wire.unpacked_places(lane.ask(room(), wire.Rooms, soon()).places)) == ROOMS
    assert node.leases == ROOMS
    yield lane
    lane.close()


def soon() -> float:
    return time.monotonic() + 5


def broken(*_arguments: object) -> None:
    raise RuntimeError


def test_an_error_of_the_daemons_own_takes_none_away(node, lane, monkeypatch):
    monkeypatch.setattr(Session, "reserve", broken)
    with pytest.raises(RefusedError):
        lane.ask(room(seed=1), wire.Rooms, soon())
    assert node.leases == ROOMS
    lane.close()
    node.wait_idle()


def test_a_connection_that_the_daemon_ends_keeps_it_until_the_engine_hears_of_it(node, lane):
    with pytest.raises(ClosedError):
        lane.ask(room(session=7), wire.Rooms, soon())
    assert node.leases == ROOMS
    lane.close()
    node.wait_idle()


def test_a_daemon_that_shuts_down_gives_it_to_nobody_else(node, lane):
    node.server.stop(5.0)
    assert not node.server.conversations
    assert node.leases == ROOMS


def test_no_page_is_read_after_a_call_has_ended(node_rig, node, monkeypatch):
    """The call ends at the first trouble, and its pages may belong to another request at once."""
    store, pool, asked = node_rig.attach(node), Pool(8), []
    store.register_memory(pool.view, pool.descriptor)
    session, pages, batch = store.open(namespace(), layout()), pool.pages(8), AttachedSession._batch
    for page, mine in zip(random_pages(8), pages, strict=True):
        spread(b"".join(page), mine)

    def fail(_session: Session, span: Span, *_rest: object) -> None:
        asked.append(span)
        raise RuntimeError

    monkeypatch.setattr(AttachedSession, "_batch", lambda *given: batch(*given[:4], 1))
    monkeypatch.setattr(Session, "set", fail)
    assert session.set(Span(chain(8)), pages, Deadline(5)) == [False] * 8
    store.close()
    node.wait_idle(2)  # it has read on by then, if it ever does
    assert len(asked) == 1
