"""The receiver's side of one connection: who is there, and what becomes of each chunk that landed."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from dataclasses import dataclass

from sgkv.backends.deadline import Deadline
from sgkv.chunk.whole import flaw
from sgkv.pd.places import Lender, Places
from sgkv.pd.wire import VERSION, Bye, Hello, Landed, ProtocolError, Refused, Verdict, Welcome, Wire

Take = Callable[[str, memoryview], bool]
_GREETING_SECONDS = 10.0
_REPLY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Terms:
    """What a receiver has for every session."""

    engine_session: str
    lender: Lender
    take: Take
    token: str
    idle_seconds: float
    closing: threading.Event
    """Once it is set nothing is taken any more."""


def serve(wire: Wire, terms: Terms) -> None:
    """Take what a sender sends until it says goodbye, in a thread of its own.

    Raises OSError where the sender goes away without, is silent for too long, or is no sender of ours, and
    RuntimeError where there are no places for it.
    """
    _admit(wire, terms.token)
    places = terms.lender.lend()
    quiet = False
    try:
        welcome = Welcome(terms.engine_session, places.size, places.pointers, places.scratch)
        wire.say(welcome, Deadline(_REPLY_SECONDS))
        while not isinstance(heard := wire.hear(Deadline(terms.idle_seconds)), Bye):
            wire.say(_judged(heard, places, terms), Deadline(_REPLY_SECONDS))
        quiet = True
    finally:
        terms.lender.take_back(places, quiet=quiet)


def _admit(wire: Wire, token: str) -> None:
    hello = wire.hear(Deadline(_GREETING_SECONDS))
    if not isinstance(hello, Hello):
        raise ProtocolError("no hello")
    if hello.version != VERSION:
        refusal = f"version {hello.version} is not {VERSION}"
    elif not hmac.compare_digest(hello.token.encode(), token.encode()):
        refusal = "the token is not the receiver's"
    else:
        return
    wire.say(Refused(refusal), Deadline(_REPLY_SECONDS))
    raise ProtocolError(refusal)


def _judged(landed: object, places: Places, terms: Terms) -> Verdict:
    """Raises ProtocolError."""
    if not isinstance(landed, Landed) or not 0 <= landed.place < len(places.pointers):
        raise ProtocolError("the end of a chunk was due")
    if not 0 < landed.size <= places.size:
        raise ProtocolError(f"{landed.size} bytes cannot have landed")
    blob = places.view(landed.place, landed.size)
    wrong = flaw(blob)
    if terms.closing.is_set():
        wrong = "closed"
    if wrong:
        return Verdict(landed.place, False, wrong)
    taken = terms.take(landed.key, blob)
    return Verdict(landed.place, taken, "" if taken else "not kept")
