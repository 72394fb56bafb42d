"""Who goes first when there is more to move than there are turns."""

import threading

from sgkv.backends.deadline import Deadline
from sgkv.backends.faulty import Fault, FaultRule, Faulty
from sgkv.node.turns import Turns
from tests.store.conftest import chain, layout, namespace, put, random_pages, read

LARGE, SMALL = 64 << 20, 4096


def test_a_small_transfer_does_not_wait_for_a_large_one():
    turns = Turns(1, 1)
    with turns.turn(LARGE, Deadline(1)) as first, turns.turn(SMALL, Deadline(0)) as second:
        assert first
        assert second
        with turns.turn(LARGE, Deadline(0)) as third:
            assert not third
    with turns.turn(LARGE, Deadline(0)) as again:
        assert again


def test_turns_go_by_arrival_also_to_those_who_come_again():
    turns, order, first_in = Turns(1, 1), [], threading.Event()

    def engine(name: str, pieces: int) -> None:
        for _ in range(pieces):
            with turns.turn(LARGE, Deadline(10)):
                order.append(name)
                first_in.set()
                both_wait.wait(10)

    both_wait = threading.Event()
    long = threading.Thread(target=engine, args=("long prefetch", 20))
    long.start()
    assert first_in.wait(10)
    short = threading.Thread(target=engine, args=("short", 1))
    short.start()
    while len(turns._large._waiting) < 1:
        threading.Event().wait(0.001)
    both_wait.set()
    long.join(10)
    short.join(10)
    assert order[:2] == ["long prefetch", "short"]


def test_whoever_gives_up_waiting_takes_no_turn_with_it():
    turns = Turns(1, 1)
    with turns.turn(LARGE, Deadline(1)):
        for _ in range(5):
            with turns.turn(LARGE, Deadline(0.001)) as mine:
                assert not mine
    assert turns.bounds()["large_calls"].used == 0


def test_engines_that_wait_for_a_hung_disk_do_not_hold_up_what_is_in_memory(node_rig):
    """The hung read has its turn; others of the same size are cut off in time, small ones go on."""
    faulty = []

    def wrap(disk):
        faulty.append(Faulty(disk))
        return faulty[0]

    node = node_rig.node(wrap=wrap, turns=Turns(1, 1), cpu_bytes=64 << 20)
    session = node_rig.attach(node).open(namespace(), layout())
    put(session, chain(1200, 7), random_pages(1200))
    assert node.store.flush(30)
    node.service.arena.delete_prefix(f"{namespace().digest}.layer/")
    put(session, chain(4), random_pages(4))
    faulty[0].set_rules([FaultRule(Fault.HANG, frozenset({"get"}))])
    waiting = threading.Thread(target=lambda: read(session, chain(1200, 7)))
    waiting.start()
    try:
        assert faulty[0].wait_hanging(10)
        assert read(session, chain(4))[0] == [None] * 4
    finally:
        faulty[0].set_rules([])
        faulty[0].release()
        waiting.join(30)
    assert read(session, chain(2, 7))[0] == [None] * 2
