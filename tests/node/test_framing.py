"""Messages that come late, or in drops."""

import socket
import struct
import threading
import time
from contextlib import suppress

import pytest

from sgkv.node import wire
from sgkv.node.framing import Channel


@pytest.mark.parametrize("timed", [True, False], ids=["by a time", "within patience"])
def test_a_message_that_comes_in_drops_is_waited_for_no_longer_than_was_said(timed):
    ours, theirs = socket.socketpair()
    ended = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            theirs.sendall(struct.pack("<I", 1000))
            while not ended.wait(0.05):
                theirs.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        Channel(ours, wire.Reply).receive(began + 0.3 if timed else None, 0.3)
    assert time.monotonic() - began < 1.0
    ended.set()
    dripping.join()
    ours.close()
    theirs.close()
