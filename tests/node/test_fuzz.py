"""Whatever arrives on the socket, the daemon goes on, holds nothing for it, and serves the others."""

import socket
import struct
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgkv.keys import packed_hashes
from sgkv.node import wire
from tests.node.conftest import Pool, opened
from tests.store.conftest import PAGE_BYTES, chain, layout, namespace

HELLO = wire.Hello(wire.VERSION, "", "fuzz")
OPEN = wire.Open(namespace(), layout(), "")
SPAN = (0, 1e18, packed_hashes(chain(3)), b"")
KINDS = [
    OPEN, wire.Share(0, 4096), wire.Lookup(*SPAN), wire.Contains(*SPAN), wire.Borrow(*SPAN),
    wire.Reserve(*SPAN), wire.Fill(*SPAN, b""), wire.Keep(*SPAN, b""),
    wire.Pin(*SPAN, True), wire.Return(), wire.Publish(1e18),
    wire.Clear(0), wire.Flush(0.0), wire.Status(), HELLO,
]  # fmt: skip

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def encoded(message: object) -> bytes:
    return framed(msgspec.msgpack.encode(message))


@st.composite
def bent(draw) -> bytes:
    """A message of the protocol with one field replaced by anything."""
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(draw(st.sampled_from(KINDS))))
    fields[draw(st.integers(0, len(fields) - 1))] = draw(values)
    return encoded(fields)


conversations = st.lists(
    st.one_of(
        bent(),
        st.sampled_from(KINDS).map(encoded),
        st.binary(max_size=64),
        st.binary(max_size=64).map(framed),
    ),
    max_size=6,
)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("fuzz"), "cpu") as rig:
        yield rig.node()


def talk(node, begin: bytes, messages: list[bytes]) -> None:
    """Send everything at once and listen until the daemon has had enough."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(10)
        peer.connect(str(node.path))
        with suppress(BrokenPipeError, ConnectionResetError):  # it hangs up in the middle
            peer.sendall(begin + b"".join(messages))
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(1 << 16):
                pass


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.booleans(), conversations)
def test_any_bytes(node, greeted, messages):
    begin = encoded(HELLO) + encoded(OPEN) if greeted else b""
    before = node.store.counters.get("internal_errors")
    talk(node, begin, messages)
    node.wait_idle(5)
    assert node.store.counters.get("internal_errors") == before


@pytest.mark.parametrize(
    "message",
    [
        wire.Fill(*SPAN, wire.packed_pairs([(0, PAGE_BYTES)] * 3)),
        wire.Keep(*SPAN, wire.packed_pairs([(4096, -1)] * 3)),
        wire.Keep(*SPAN, wire.packed_pairs([(0, PAGE_BYTES), (0, PAGE_BYTES)])),
        wire.Lookup(0, 1e18, b"short", None),
        wire.Lookup(7, 1e18, b"", None),
        wire.Lookup(-1, 1e18, b"", None),
        wire.Lookup(0, float("nan"), b"", None),
        wire.Publish(1e18),
        wire.Share(0, 4096),
        HELLO,
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_makes_no_sense_ends_the_connection(node, message):
    before = node.store.counters.get("broken_connections")
    talk(node, encoded(HELLO) + encoded(OPEN), [encoded(message), encoded(wire.Status())])
    node.wait_idle(5)
    assert node.store.counters.get("broken_connections") == before + 1


def test_buffers_outside_of_what_is_shared_are_refused(node):
    pool = Pool(4)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(10)
        peer.connect(str(node.path))
        peer.sendall(encoded(HELLO) + encoded(OPEN))
        socket.send_fds(peer, [encoded(wire.Share(1 << 20, 4 * PAGE_BYTES))], [pool.descriptor])
        outside = wire.packed_pairs([((1 << 20) + 2 * PAGE_BYTES, PAGE_BYTES), *[(1 << 20, PAGE_BYTES)] * 2])
        peer.sendall(encoded(wire.Keep(*SPAN, outside)))
        beyond = wire.packed_pairs([((1 << 20) + 3 * PAGE_BYTES + 1, PAGE_BYTES)] * 3)
        peer.sendall(encoded(wire.Keep(*SPAN, beyond)))
        peer.shutdown(socket.SHUT_WR)
        answers = b"".join(iter(lambda: peer.recv(1 << 16), b""))
    assert answers.count(b"Flags") == 1
    node.wait_idle(5)


def test_a_message_that_is_too_long_is_not_read(node):
    talk(node, encoded(HELLO), [struct.pack("<I", wire.MAX_MESSAGE + 1)])
    node.wait_idle(5)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_descriptors_that_nobody_asked_for_are_closed(node):
    before = open_files()
    pool = Pool(1)
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(node.path))
            socket.send_fds(peer, [encoded(HELLO)], [pool.descriptor] * 4)
            socket.send_fds(peer, [encoded(wire.Status())], [pool.descriptor] * 4)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(1 << 16):
                pass
    node.wait_idle(5)
    assert open_files() <= before + 1
