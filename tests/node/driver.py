"""An engine in a process of its own, for tests that kill it: attaches to the socket in argv and does as told.

``hold leases`` and ``hold room`` take a batch and wait; ``traffic SEED`` stores and reads until killed, and
ends with code 3 when it reads a wrong byte.
"""

import sys
import threading
from itertools import count
from pathlib import Path

from sgkv.backends.deadline import Deadline
from sgkv.node import wire
from sgkv.node.store import AttachedStore
from sgkv.store.span import Span
from tests.node.contents import PAGES, contents, wrong_pages
from tests.store.conftest import blank_pages, chain, joined, layout, namespace

WRONG = 3


def say_so() -> None:
    sys.stdout.write("holding\n")
    sys.stdout.flush()


def hold(session, what: str) -> None:
    def take(lane, until):
        asked = session._asked(lane, Span(chain(PAGES)), until)
        if what == "leases":
            held = wire.unpacked_places(lane.ask(wire.Borrow(*asked), wire.Lent, until).places)
        else:
            held = wire.unpacked_places(lane.ask(wire.Reserve(*asked), wire.Rooms, until).places)
        assert min(held) >= 0, held
        say_so()
        threading.Event().wait()

    session._link.call(take, Deadline(30))


def traffic(session, seed: int) -> None:
    say_so()
    for turn in count(seed):
        hashes = chain(PAGES, turn % 8)
        session.set(Span(hashes), contents(turn % 8), Deadline(5))
        into = blank_pages(PAGES)
        reasons = session.get(Span(hashes), into, Deadline(5))
        if wrong_pages(turn % 8, reasons, joined(into)):
            sys.exit(WRONG)


def main() -> None:
    session = AttachedStore(Path(sys.argv[1]), chunk_tokens=64).open(namespace(), layout())
    if sys.argv[2] == "hold":
        hold(session, sys.argv[3])
    else:
        traffic(session, int(sys.argv[3]))


if __name__ == "__main__":
    main()
