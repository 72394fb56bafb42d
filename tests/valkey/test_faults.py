"""What goes wrong with servers: statuses with a reason, in time, and never wrong bytes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.breaker import BreakerPolicy
from sgkv.backends.deadline import Deadline
from sgkv.backends.guard import Guarded
from sgkv.backends.valkey import exchange
from sgkv.testing.valkey import ValkeyServer
from sgkv.testing.waiting import wait_until
from tests.backends.blobs import blob, get, key_of, put
from tests.valkey.conftest import Open
from tests.valkey.scripts import Script, impatient, reads

KEY = key_of(1)
MIB = 1 << 20
SOON = 5.0
"""Seconds that no answer of ours may take."""


def test_a_lookup_of_400_is_one_round_trip(open_valkey: Open) -> None:
    """The server answers nothing before it has all: who waits for an answer in between waits for ever."""
    arrived: list[Sequence[bytes]] = []

    def answer(words: Sequence[bytes]) -> bytes:
        if words[0] != b"EXISTS":
            return b"-ERR not now\r\n"
        arrived.append(words)
        return b"".join(b":%d\r\n" % (at % 2) for at in range(400)) if len(arrived) == 400 else b""

    with Script(answer) as script:
        backend = open_valkey(impatient(script))
        assert backend.contains([key_of(at) for at in range(400)]) == [False, True] * 200


def test_a_restarted_server_is_found_again(victim: ValkeyServer, open_valkey: Open) -> None:
    backend = open_valkey(victim.options)
    for _ in range(2):
        assert put(backend, KEY, blob(MIB)) is Status.OK
        assert get(backend, KEY, MIB) == blob(MIB)
        victim.kill()
        assert get(backend, KEY, MIB) is Status.ERROR
        assert backend.probe([KEY]) == ([False], Status.ERROR)
        victim.start()
        assert backend.contains([KEY]) == [False]


def test_a_dead_server_opens_the_breaker(victim: ValkeyServer, open_valkey: Open) -> None:
    guarded = Guarded(
        open_valkey(victim.options), breaker=BreakerPolicy(consecutive_failures=3, cooldown_s=60)
    )
    put(guarded, KEY, b"data")
    victim.kill()
    began = time.monotonic()
    assert [get(guarded, KEY, 4) for _ in range(4)] == [Status.ERROR] * 3 + [Status.BREAKER_OPEN]
    assert time.monotonic() - began < SOON
    guarded.close()


def test_a_server_that_hangs_costs_no_more_than_the_deadline(victim: ValkeyServer, open_valkey: Open) -> None:
    backend, data = open_valkey(victim.options), blob(MIB)
    put(backend, KEY, data)
    victim.pause()
    began = time.monotonic()
    into = bytearray(MIB)
    assert backend.get([GetItem(KEY, [Part(0, memoryview(into))])], Deadline(0.3)) == [Status.TIMEOUT]
    assert put(backend, key_of(2), data, Deadline(0.3)) is Status.TIMEOUT
    assert backend.probe([KEY], Deadline(0.3)) == ([False], Status.TIMEOUT)
    assert time.monotonic() - began < SOON
    victim.resume()
    assert get(backend, KEY, MIB) == data
    assert into == bytes(MIB)


def test_a_put_that_was_given_up_never_appears(victim: ValkeyServer, open_valkey: Open) -> None:
    """Its buffers are the caller's again: what they hold when the server wakes up is not what was stored."""
    backend, source = open_valkey(victim.options), bytearray(blob(64 * MIB))
    backend.contains([KEY])
    inside = threading.Event()

    def prepare() -> None:
        victim.pause()  # it has said that the key is new, and will not take the value
        inside.set()

    item = PutItem(KEY, [memoryview(source)], prepare)
    assert backend.put([item], Deadline(1.0)) == [Status.TIMEOUT]
    assert inside.is_set()
    source[:] = bytes(len(source))
    victim.resume()
    assert backend.contains([KEY]) == [False]
    assert put(backend, KEY, b"data") is Status.OK


def test_a_kept_connection_that_died_is_no_failure(victim: ValkeyServer, open_valkey: Open) -> None:
    backend = open_valkey(victim.options)
    put(backend, KEY, b"data")
    victim.say("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes")
    assert get(backend, KEY, 4) == b"data"
    assert put(backend, key_of(2), b"more") is Status.OK


def test_nothing_lands_after_the_caller_gave_up(open_valkey: Open) -> None:
    release = threading.Event()
    usual = reads(b"$4\r\nlate\r\n")

    def answer(words: Sequence[bytes]) -> bytes | None:
        if words[0] == b"EXEC":
            release.wait(10)
        return usual(words)

    with Script(answer) as script:
        backend, into = open_valkey(impatient(script)), bytearray(4)
        items = [GetItem(KEY, [Part(0, memoryview(into))])]
        assert backend.get(items, Deadline(0.2)) == [Status.TIMEOUT]
        release.set()
        backend.close()
    assert into == bytes(4)


def test_wrong_bytes_are_found_by_who_can_tell(server: ValkeyServer, open_valkey: Open, prefix: str) -> None:
    backend, data = open_valkey(replace(server.options, prefix=prefix)), blob(MIB)
    put(backend, KEY, data)
    server.say("SETRANGE", prefix + KEY, 700_000, "flipped")
    into = bytearray(MIB)
    item = GetItem(KEY, [Part(0, memoryview(into))], lambda: into == data)
    assert backend.get([item]) == [Status.CORRUPT]


def test_a_blob_that_was_cut_is_short(server: ValkeyServer, open_valkey: Open, prefix: str) -> None:
    backend = open_valkey(replace(server.options, prefix=prefix))
    server.say("SET", prefix + KEY, b"x" * 1000)
    put(backend, key_of(2), blob(5000))
    buffers = [bytearray(2000), bytearray(5000)]
    items = [GetItem(key_of(1 + at), [Part(0, memoryview(into))]) for at, into in enumerate(buffers)]
    assert backend.get(items) == [Status.SHORT, Status.OK]
    assert buffers[1] == blob(5000)


@pytest.mark.slow
def test_no_wrong_bytes_and_nothing_left_over_while_a_server_dies_and_hangs(
    victim: ValkeyServer, open_valkey: Open
) -> None:
    backend, over, outcomes = open_valkey(victim.options), threading.Event(), set[Status]()

    def work(seed: int) -> None:
        numbers = random.Random(seed)
        while not over.is_set():
            number = numbers.randrange(20)
            outcomes.add(put(backend, key_of(number), blob(300_000, number), Deadline(0.5)))
            found = get(backend, key_of(number), 300_000, Deadline(0.5))
            assert isinstance(found, Status) or found == blob(300_000, number)
            outcomes.add(found if isinstance(found, Status) else Status.OK)

    with ThreadPoolExecutor(4) as threads:
        working = [threads.submit(work, seed) for seed in range(4)]
        for _ in range(3):
            victim.kill()
            victim.start()
            wait_until(lambda: backend.contains([key_of(0)])[0], "work to go on", 20)
            victim.pause()
            over.wait(0.7)
            victim.resume()
        over.set()
        for each in working:
            each.result(30)
    assert outcomes >= {Status.OK, Status.EXISTS, Status.ERROR, Status.TIMEOUT}
    port = int(victim.options.address.rpartition(":")[2])
    assert connections_to(port) <= 2 * victim.options.connections + 2
    backend.close()
    assert connections_to(port) == 0


def connections_to(port: int) -> int:
    """Sockets of this process that are, or were, connected to a port, as /proc tells it."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[2].endswith(f":{port:04X}")}
    return sum(_target(file) in sockets for file in Path("/proc/self/fd").iterdir())


def _target(file: Path) -> str:
    """Where a link leads; nowhere if it is closed while we look."""
    with suppress(OSError):
        return str(file.readlink())
    return ""


@pytest.mark.parametrize(
    "answer",
    [
        reads(b"$4\r\nda"),
        reads(b"$4\r\ndatax\r"),
        reads(b"$4\r\ndata--"),
        reads(b"$5\r\ndatas\r\n"),
        reads(b"$99999999999\r\n"),
        reads(b"$-2\r\n"),
        reads(b"$-1\r\n"),
        reads(b"$4x\r\ndata\r\n"),
        reads(b":4\r\n"),
        reads(b"+data\r\n"),
        reads(b"*1\r\n$4\r\ndata\r\n"),
        reads(b"$4\r\ndata\r\n", before=b"*1\r\n:1\r\n"),
        reads(b"$4\r\ndata\r\n", before=b"*99999999\r\n:1\r\n"),
        reads(b"$4\r\ndata\r\n", before=b"*2\r\n:7\r\n"),
        reads(b"", before=b"*-1\r\n"),
        reads(b"", before=b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        reads(b"", before=b"x" * 200_000),
        lambda words: b"\x16\x03\x01\x02\x00",
        lambda words: b"",
        lambda words: None,
    ],
    ids=[
        "half", "no end", "wrong end", "more than asked", "huge", "negative", "nil", "no number", "number",
        "simple", "array", "short array", "huge array", "two of it", "aborted", "http", "no line", "tls",
        "nothing", "hangs up",
    ],
)  # fmt: skip
def test_what_is_not_the_protocol_is_an_error_in_time(open_valkey: Open, answer: object) -> None:
    with Script(answer) as script:  # type: ignore[arg-type]
        backend = open_valkey(impatient(script))
        began = time.monotonic()
        assert get(backend, KEY, 4) is Status.ERROR
        assert time.monotonic() - began < SOON
        counters = backend.stats().counters
        assert counters.get("errors_unreachable", 0) + counters.get("errors_silent", 0) >= 1


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"-LOADING the dataset is in the way\r\n", "loading"),
        (b"-MASTERDOWN link is down\r\n", "loading"),
        (b"-CLUSTERDOWN the cluster is down\r\n", "cluster_down"),
        (b"-NOAUTH Authentication required.\r\n", "denied"),
        (b"-READONLY You can't write\r\n", "readonly"),
        (b"-ERR max number of clients reached\r\n", "refused"),
        (b"-MOVED 1 127.0.0.1:1\r\n", "unreachable"),
        (b"-MOVED 1 ..:1\r\n", "unreachable"),
        (b"-MOVED 1 nowhere\r\n", "unreachable"),
    ],
)
def test_refusals_are_errors_of_their_kind(open_valkey: Open, said: bytes, kind: str) -> None:
    with Script(lambda words: said) as script:
        backend = open_valkey(impatient(script))
        assert backend.probe([KEY]) == ([False], Status.ERROR)
        assert put(backend, KEY, b"data") is Status.ERROR
        assert get(backend, KEY, 4) is Status.ERROR
        assert backend.stats().counters[f"errors_{kind}"] == 3


def test_a_server_that_sends_us_in_circles_is_left(open_valkey: Open) -> None:
    with Script(lambda words: b"-MOVED 1 :%d\r\n" % int(script.address.rpartition(":")[2])) as script:
        backend = open_valkey(impatient(script))
        assert backend.probe([KEY]) == ([False], Status.ERROR)
        assert script.requests["EXISTS"] == 3
        assert backend.stats().counters["errors_moved"] == 1


def test_a_server_that_drips_holds_no_thread_for_long(
    open_valkey: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes before `read_timeout`, and nobody set a deadline."""
    monkeypatch.setattr(exchange, "_PATIENCE", 1.0)
    over = threading.Event()

    def drip(words: Sequence[bytes]) -> bytes:
        return b"" if over.wait(0.1) else b"+"

    with Script(drip) as script:
        backend = open_valkey(impatient(script))
        began = time.monotonic()
        assert get(backend, KEY, 4) in (Status.TIMEOUT, Status.ERROR)
        assert time.monotonic() - began < SOON
        over.set()


def test_silence_in_a_row_leaves_what_was_answered(open_valkey: Open) -> None:
    def answer(words: Sequence[bytes]) -> bytes:
        return b":1\r\n" if words[-1].endswith(key_of(1).encode()) else b""

    with Script(answer) as script:
        backend = open_valkey(impatient(script))
        assert backend.probe([key_of(1), key_of(2)]) == ([True, False], Status.TIMEOUT)
