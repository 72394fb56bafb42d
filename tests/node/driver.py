"""An engine in a process of its own, for tests that kill it: attaches to a socket and does as it is told.

``hold leases`` and ``hold room`` take a batch and wait. ``traffic SEED [FENCE]`` stores and reads until it is
killed, and ends with code 3 when it reads a wrong byte; with FENCE its pages lie in memory that is shared.
"""

import sys
import threading
from itertools import count
from pathlib import Path

from sgkv.backends.deadline import Deadline
from sgkv.node import wire
from sgkv.node.store import AttachedStore
from sgkv.store.span import Span
from tests.node.conftest import InSharedMemory, Pool
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
        session.set(Span(hashes), contents(turn % 8), Deadline(0.5))
        into = blank_pages(PAGES)
        reasons = session.get(Span(hashes), into, Deadline(0.5))
        if wrong_pages(turn % 8, reasons, joined(into)):
            sys.exit(WRONG)


def main() -> None:
    path, what, which, *fence = sys.argv[1:]
    store = AttachedStore(Path(path), chunk_tokens=64, fence=float(fence[0]) if fence else 600.0)
    session = store.open(namespace(), layout())
    if what == "hold":
        hold(session, which)
    elif fence:
        pool = Pool(PAGES)
        store.register_memory(pool.view, pool.descriptor)
        traffic(InSharedMemory(session, pool), int(which))
    else:
        traffic(session, int(which))


if __name__ == "__main__":
    main()
