"""Chunks pushed between two processes over the real Transfer Engine, and what happens when one dies."""

import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from threading import Event

import pytest

from sgkv.backends.base import BlobInfo, PutItem
from sgkv.backends.cpu import CpuBackend
from sgkv.backends.deadline import Deadline
from sgkv.backends.mooncake.runs import Run
from sgkv.chunk.header import header_size
from sgkv.pd import Engine, Outcome, Receiver, Sender, push, taking_into
from sgkv.pd.wire import Hello, Refused, Wire
from sgkv.testing.waiting import wait_until
from tests.backends.blobs import get, key_of, put
from tests.mooncake.channel_peer import PAGE, SECONDS, SLOT, chunk

pytestmark = pytest.mark.slow

Peer = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


@pytest.fixture
def taken() -> dict[str, bytes]:
    return {}


@pytest.fixture
def receiver(engine: Engine, taken: dict[str, bytes]) -> Iterator[Receiver]:
    def take(key: str, blob: memoryview) -> bool:
        taken[key] = bytes(blob)
        return True

    with closing(Receiver(engine, take, slot_bytes=SLOT, slots=2)) as receiver:
        yield receiver


@pytest.fixture
def peer() -> Iterator[Peer]:
    """Starts the other end in a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(role: str, port: int = 0) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.mooncake.channel_peer", role, str(port)]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        with suppress(BrokenPipeError):
            process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]):
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def send(sender: Sender, number: int, blob: memoryview | None = None) -> Outcome:
    return sender.send(key_of(number), chunk(number) if blob is None else blob, Deadline(SECONDS))


def test_chunks_of_another_process_arrive_whole(receiver: Receiver, taken: dict[str, bytes], peer: Peer):
    process = peer("send", receiver.address[1])
    assert [line(process) for _ in range(3)] == ["True"] * 3
    assert taken == {key_of(number): bytes(chunk(number)) for number in range(3)}
    assert receiver.retired == 0


def test_what_arrives_is_found_in_a_tier(engine: Engine, peer: Peer):
    backend = CpuBackend(8 * SLOT, prefault=False)
    receiver = Receiver(engine, taking_into(backend), slot_bytes=SLOT)
    with closing(backend), closing(receiver):
        process = peer("send", receiver.address[1])
        assert [line(process) for _ in range(3)] == ["True"] * 3
        for number in range(3):
            assert get(backend, key_of(number), len(chunk(number))) == bytes(chunk(number))


def test_what_a_tier_holds_is_pushed_and_what_it_lost_is_not(
    engine: Engine, receiver: Receiver, taken: dict[str, bytes]
):
    with closing(CpuBackend(32 * SLOT, prefault=False)) as source:
        for number in range(20):
            assert put(source, key_of(number), bytes(chunk(number))).ok
        blobs = [BlobInfo(key_of(number), len(chunk(number)), 0.0) for number in range(20)]
        source.delete([key_of(11)])
        with closing(Sender(engine, receiver.address)) as sender:
            outcomes = push(source, blobs, sender, Deadline(SECONDS))
    assert outcomes[11] == Outcome(False, "it cannot be read: absent")
    assert outcomes[:11] + outcomes[12:] == [Outcome(True)] * 19
    assert taken == {key_of(number): bytes(chunk(number)) for number in range(20) if number != 11}


def test_a_tier_without_room_says_that_it_kept_nothing(engine: Engine):
    backend = CpuBackend(1 << 16, prefault=False)
    receiver = Receiver(engine, taking_into(backend), slot_bytes=SLOT)
    with closing(backend), closing(receiver), closing(Sender(engine, receiver.address)) as sender:
        assert send(sender, 1, chunk(1, pages=400)) == Outcome(False, "not kept")


@pytest.mark.parametrize("at", [0, 40, -1])
def test_a_damaged_chunk_is_not_taken(engine: Engine, receiver: Receiver, taken: dict[str, bytes], at: int):
    damaged = chunk(1)
    damaged[at] ^= 1
    with closing(Sender(engine, receiver.address)) as sender:
        assert not send(sender, 1, damaged).taken
        assert not send(sender, 2, chunk(2)[:-1]).taken
        assert send(sender, 3) == Outcome(True)
    assert list(taken) == [key_of(3)]


def test_what_does_not_fit_is_refused(engine: Engine, receiver: Receiver):
    with closing(Sender(engine, receiver.address)) as sender:
        assert not send(sender, 1, memoryview(bytes(SLOT + 1))).taken
        assert not send(sender, 1, memoryview(b"")).taken
        assert send(sender, 1).taken


def test_more_chunks_than_places_and_some_of_them_bad(
    engine: Engine, receiver: Receiver, taken: dict[str, bytes]
):
    blobs = [chunk(number) for number in range(20)]
    blobs[7][-1] ^= 1
    items = [PutItem(key_of(number), [blob]) for number, blob in enumerate(blobs)]
    with closing(Sender(engine, receiver.address)) as sender:
        outcomes = sender.send_all(items, Deadline(SECONDS))
        assert [outcome.taken for outcome in outcomes] == [number != 7 for number in range(20)]
    assert taken == {key_of(number): bytes(chunk(number)) for number in range(20) if number != 7}


def test_threads_share_a_sender(engine: Engine, receiver: Receiver, taken: dict[str, bytes]):
    with closing(Sender(engine, receiver.address)) as sender, ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda number: send(sender, number), range(40)))
    assert outcomes == [Outcome(True)] * 40
    assert taken == {key_of(number): bytes(chunk(number)) for number in range(40)}


def test_pages_are_sent_from_where_they_lie(engine: Engine, receiver: Receiver, taken: dict[str, bytes]):
    """Large runs of registered memory without a copy; the header and small runs through one."""
    whole = chunk(1, pages=600)
    arena = memoryview(bytearray(2 * SLOT))
    begin, middle = header_size(600), header_size(600) + 300 * PAGE
    arena[: middle - begin] = whole[begin:middle]
    arena[SLOT : SLOT + len(whole) - middle] = whole[middle:]
    header, filled = memoryview(bytearray(begin)), []

    def prepare():
        header[:] = whole[:begin]
        filled.append(True)

    parts = [header, arena[: middle - begin], arena[SLOT : SLOT + len(whole) - middle]]
    assert engine.register_memory(arena)
    with closing(Sender(engine, receiver.address)) as sender:
        assert sender.send_all([PutItem(key_of(1), parts, prepare)], Deadline(SECONDS)) == [Outcome(True)]
    assert engine.unregister_memory(arena)
    assert (taken, filled) == ({key_of(1): bytes(whole)}, [True])


def test_a_cancelled_chunk_is_not_taken(engine: Engine, receiver: Receiver, taken: dict[str, bytes]):
    deadline = Deadline(SECONDS)
    deadline.cancel()
    with closing(Sender(engine, receiver.address)) as sender:
        assert not sender.send(key_of(1), chunk(1), deadline).taken
        assert send(sender, 2).taken
    assert list(taken) == [key_of(2)]


class Interrupted(Engine):
    """A true engine that something happens to right before or after its next write."""

    before: Callable[[], object] = staticmethod(lambda: None)
    after: Callable[[], object] = staticmethod(lambda: None)

    def write(self, session: str, runs: Sequence[Run], target: int) -> bool:
        self.before()
        written = super().write(session, runs, target)
        self.after()
        return written


def test_a_chunk_cancelled_while_it_is_written_is_not_taken(receiver: Receiver, taken: dict[str, bytes]):
    engine, deadline = Interrupted(), Deadline(SECONDS)
    with closing(Sender(engine, receiver.address)) as sender:
        engine.after = deadline.cancel
        assert sender.send(key_of(1), chunk(1), deadline) == Outcome(False, "the deadline is over")
        assert send(sender, 2).taken
    assert list(taken) == [key_of(2)]
    assert receiver.retired == 0


def test_a_sender_that_gave_up_waiting_leaves_its_places_behind(engine: Engine):
    go_on = Event()

    def take(_key: str, _blob: memoryview) -> bool:
        return go_on.wait(SECONDS)

    with closing(Receiver(engine, take, slot_bytes=SLOT, slots=1, senders=1)) as receiver:
        with closing(Sender(engine, receiver.address)) as sender:
            begin = time.monotonic()
            assert not sender.send(key_of(1), chunk(1), Deadline(0.2)).taken
            assert time.monotonic() - begin < 1.0
            go_on.set()
            assert send(sender, 2) == Outcome(False, "an answer did not come in time")
        with closing(Sender(engine, receiver.address)) as sender:
            assert send(sender, 2).taken
        assert receiver.retired == 0


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
def test_a_receiver_struck_in_the_middle_of_a_chunk(peer: Peer, blow: signal.Signals):
    engine, process = Interrupted(), peer("receive")
    with closing(Sender(engine, ("127.0.0.1", int(line(process))))) as sender:
        engine.before = lambda: os.kill(process.pid, blow)
        begin = time.monotonic()
        assert not sender.send(key_of(1), chunk(1), Deadline(0.5)).taken
        assert time.monotonic() - begin < 1.0
        assert not send(sender, 2).taken


def test_a_receiver_without_descriptors_serves_again_when_there_are_some(engine: Engine, receiver: Receiver):
    """As `accept` says it: the next call succeeds."""
    listener = receiver._listener

    class Exhausted:
        def accept(self):
            receiver._listener = listener
            raise OSError(errno.EMFILE, "too many open files")

    receiver._listener = Exhausted()
    with closing(Sender(engine, receiver.address)) as sender:  # ends the accept that waits now
        assert send(sender, 1).taken
    with closing(Sender(engine, receiver.address)) as sender:
        assert send(sender, 2).taken
    assert receiver._listener is listener


def test_a_closed_sender_says_so(engine: Engine, receiver: Receiver):
    sender = Sender(engine, receiver.address)
    sender.close()
    sender.close()
    assert send(sender, 1) == Outcome(False, "closed")


def test_a_closed_receiver_takes_nothing(engine: Engine, receiver: Receiver, taken: dict[str, bytes]):
    with closing(Sender(engine, receiver.address)) as sender:
        receiver.close()
        assert not send(sender, 1).taken
    assert not taken


@pytest.mark.parametrize("raw", [b"\xff" * 8, struct.pack("<I", 3) + b"abc"])
def test_strangers_are_sent_away(engine: Engine, receiver: Receiver, raw: bytes):
    with socket.create_connection(receiver.address, timeout=SECONDS) as connection:
        connection.sendall(raw)
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    with closing(Sender(engine, receiver.address)) as sender:
        assert send(sender, 1).taken


def test_another_version_is_told_ours_and_sent_away(receiver: Receiver):
    with socket.create_connection(receiver.address) as connection:
        wire = Wire(connection)
        wire.say(Hello(99), Deadline(SECONDS))
        assert wire.hear(Deadline(SECONDS)) == Refused("version 99 is not 2")
        with pytest.raises(ConnectionError):
            wire.hear(Deadline(SECONDS))


def test_a_receiver_with_a_token_serves_only_who_knows_it(engine: Engine):
    receiver = Receiver(engine, lambda _key, _blob: True, slot_bytes=SLOT, token="of us")
    with closing(receiver):
        for token in ("", "of others"):
            with pytest.raises(ConnectionError, match="token"):
                Sender(engine, receiver.address, token=token)
        with closing(Sender(engine, receiver.address, token="of us")) as sender:
            assert send(sender, 1).taken


def test_killed_senders_take_no_places_with_them(engine: Engine, receiver: Receiver, peer: Peer):
    for number in range(6):  # more than may send at a time
        process = peer("dawdle", receiver.address[1])
        assert line(process) == "welcome"
        process.kill()
        wait_until(lambda: receiver.retired == number + 1, "the end of its session", SECONDS)  # noqa: B023
    with closing(Sender(engine, receiver.address)) as sender:
        assert all(send(sender, number).taken for number in range(4))


def test_a_late_write_of_a_stopped_sender_meets_no_other_chunk(
    engine: Engine, taken: dict[str, bytes], peer: Peer
):
    def take(key: str, blob: memoryview) -> bool:
        taken[key] = bytes(blob)
        return True

    with closing(Receiver(engine, take, slot_bytes=SLOT, slots=2, idle_seconds=1.0)) as receiver:
        process = peer("dawdle", receiver.address[1])
        assert line(process) == "welcome"
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: receiver.retired == 1, "the end of its session", SECONDS)
        with closing(Sender(engine, receiver.address)) as sender:
            assert all(send(sender, number).taken for number in range(4))
            os.kill(process.pid, signal.SIGCONT)
            go_on(process)
            assert [line(process), line(process)] == ["False", "too late"]
            assert send(sender, 4).taken
    assert taken == {key_of(number): bytes(chunk(number)) for number in range(5)}


def test_a_killed_receiver_is_noticed_and_another_one_serves(engine: Engine, peer: Peer):
    process = peer("receive")
    with closing(Sender(engine, ("127.0.0.1", int(line(process))))) as sender:
        assert send(sender, 1).taken
        process.kill()
        process.wait()
        assert not send(sender, 2).taken
        assert not send(sender, 3).taken
    with closing(Sender(engine, ("127.0.0.1", int(line(peer("receive")))))) as sender:
        assert send(sender, 2).taken


def test_receivers_that_follow_each_other_at_one_address(engine: Engine, peer: Peer):
    """The library keeps connections; those to a process that is gone must not cost the next one a chunk."""
    for number in range(3):
        process = peer("receive")
        with closing(Sender(engine, ("127.0.0.1", int(line(process))))) as sender:
            assert send(sender, number) == Outcome(True)
        process.kill()
        process.wait()


def test_a_receiver_that_hangs_costs_no_more_than_the_deadline(engine: Engine, peer: Peer):
    process = peer("receive")
    with closing(Sender(engine, ("127.0.0.1", int(line(process))))) as sender:
        assert send(sender, 1).taken
        os.kill(process.pid, signal.SIGSTOP)
        begin = time.monotonic()
        assert not sender.send(key_of(2), chunk(2), Deadline(0.5)).taken
        assert time.monotonic() - begin < 1.0
        assert not send(sender, 3).taken
