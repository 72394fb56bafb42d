"""The other end of a transfer channel: `python -m tests.mooncake.channel_peer ROLE [PORT]`.

It says on stdout how far it is, and goes on with a line on stdin.
"""

import socket
import sys

from sgkv.backends.deadline import Deadline
from sgkv.backends.mooncake.runs import Run
from sgkv.chunk.header import Header, blob_size, checksum, encode_header, header_size
from sgkv.pd import Engine, Receiver, Sender
from sgkv.pd.engine import Region
from sgkv.pd.wire import VERSION, Hello, Landed, Welcome, Wire
from tests.backends.blobs import NAMESPACE, blob, key_of

SLOT = 1 << 20
SECONDS = 20
PAGE = 4 * 2 * 2 * 64
"""Bytes of a page of `chunk`: tokens, layers and rows."""


def chunk(seed: int, pages: int = 8) -> memoryview:
    """A true chunk."""
    whole, begin = memoryview(bytearray(blob_size(pages, PAGE))), header_size(pages)
    whole[begin:] = blob(pages * PAGE, seed)
    sums = b"".join(checksum([whole[at : at + PAGE]]) for at in range(begin, len(whole), PAGE))
    header = Header(NAMESPACE, "layer", "uint8", 4, 2, 2, (64,), blob(pages * 32), sums)
    encode_header(header, whole[:begin])
    return whole


def tell(word: object):
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def receive(_port: int):
    """Takes chunks until stdin says otherwise."""
    receiver = Receiver(Engine(), lambda _key, _blob: True, slot_bytes=SLOT)
    tell(receiver.address[1])
    sys.stdin.readline()
    receiver.close()


def send(port: int):
    sender = Sender(Engine(), ("127.0.0.1", port))
    for number in range(3):
        tell(sender.send(key_of(number), chunk(number), Deadline(SECONDS)).taken)
    sender.close()


def dawdle(port: int):
    """Gets places, and writes into one when it is told to, however late."""
    engine, deadline = Engine(), Deadline(60)
    staging = Region(engine, SLOT)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        wire = Wire(connection)
        wire.say(Hello(VERSION), deadline)
        welcome = wire.hear(deadline)
        assert isinstance(welcome, Welcome)
        tell("welcome")
        sys.stdin.readline()
        staging.view[:] = b"\xff" * SLOT
        tell(engine.write(welcome.session, [Run(staging.pointer, SLOT, 0)], welcome.places[-1]))
        try:
            wire.say(Landed(len(welcome.places) - 1, key_of(9), SLOT), deadline)
            tell(wire.hear(deadline))
        except OSError:
            tell("too late")


if __name__ == "__main__":
    {"receive": receive, "send": send, "dawdle": dawdle}[sys.argv[1]](int((sys.argv[2:] or ["0"])[0]))
