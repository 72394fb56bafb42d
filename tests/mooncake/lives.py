"""Lives of a process that uses a pool: `python -m tests.mooncake.lives NAME MASTER ADMIN`.

Each prints ``alive`` when it comes to its end; how the process ends is what the tests are about.
"""

import ctypes
import os
import sys
import threading
import time

from sgkv.backends.base import Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.mooncake import MooncakeBackend, MooncakeOptions
from tests.backends.blobs import blob, get, key_of, put

MIB = 1 << 20
PATIENCE = 30


def opened(master: str, admin: str, **changes: object) -> MooncakeBackend:
    return MooncakeBackend(MooncakeOptions(master=master, admin=admin, **changes))


def end_without_closing(master: str, admin: str):
    backend = opened(master, admin, segment_bytes=32 * MIB)
    assert put(backend, key_of(1), blob(MIB)).ok
    assert get(backend, key_of(1), MIB) == blob(MIB)


def close_twice_and_call(master: str, admin: str):
    backend = opened(master, admin)
    backend.close()
    backend.close()
    assert put(backend, key_of(1), b"late") is Status.CLOSED
    assert get(backend, key_of(1), 4) is Status.CLOSED
    assert backend.contains([key_of(1)]) == backend.delete([key_of(1)]) == [False]
    assert backend.delete_prefix("any/") is False
    assert not backend.register_memory(memoryview(bytearray(4096)))


def call_before_connected(_master: str, _admin: str):
    backend = opened("127.0.0.1:1", "http://127.0.0.1:1", connect_wait=0.1)
    for _ in range(3):
        assert backend.probe([key_of(1)]) == ([False], Status.ERROR)
        assert put(backend, key_of(1), b"early") is Status.ERROR
        assert get(backend, key_of(1), 5) is Status.ERROR
        assert backend.delete([key_of(1)]) == [False]
    backend.close()


def connect_again(master: str, admin: str):
    """A second setup would replace the first segment and what is in it."""
    backend = opened(master, admin, segment_bytes=32 * MIB)
    assert put(backend, key_of(1), blob(MIB)).ok
    for _ in range(3):
        assert backend._client.connect(1.0)
    assert get(backend, key_of(1), MIB) == blob(MIB)
    backend.close()


def several_in_one_process(master: str, admin: str):
    first, second = opened(master, admin, segment_bytes=16 * MIB), opened(master, admin)
    assert put(first, key_of(1), blob(MIB)).ok
    assert get(second, key_of(1), MIB) == blob(MIB)
    second.close()
    assert get(first, key_of(1), MIB) == blob(MIB)
    first.close()


def fork_and_use(master: str, admin: str):
    backend = opened(master, admin, segment_bytes=32 * MIB)
    assert put(backend, key_of(1), blob(MIB)).ok
    child = os.fork()
    if not child:
        assert put(backend, key_of(2), b"child") is Status.CLOSED
        assert get(backend, key_of(1), MIB) is Status.CLOSED
        assert backend.contains([key_of(1)]) == [False]
        backend.close()
        del backend
        sys.exit(7)  # with everything an interpreter does at its end
    ending = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ending == 7, ending
    assert get(backend, key_of(1), MIB) == blob(MIB)
    backend.close()


def close_under_traffic(master: str, admin: str):
    backend, stop, wrong = opened(master, admin, segment_bytes=64 * MIB), threading.Event(), []

    def work(at: int):
        number = 0
        while not stop.is_set():
            number = (number + 1) % 16
            put(backend, key_of(number), blob(MIB, number))
            found = get(backend, key_of(number), MIB)
            if isinstance(found, bytes) and found != blob(MIB, number):
                wrong.append(number)
            if at == 0:
                backend.delete([key_of(number)])

    threads = [threading.Thread(target=work, args=(at,), daemon=True) for at in range(4)]
    for thread in threads:
        thread.start()
    stop.wait(1.0)
    backend.close()
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert not wrong


def bad_memory(master: str, admin: str):
    """Memory that was never there is never touched; overlapping and empty regions are refused."""
    backend = opened(master, admin)
    region = memoryview(bytearray(64 << 10))
    assert backend.register_memory(region)
    assert not backend.register_memory(region[4096:8192])
    assert not backend.register_memory(region[:0])
    assert put(backend, key_of(5), bytes(region)).ok
    del region
    assert get(backend, key_of(5), 64 << 10) == bytes(64 << 10)
    backend.close()


def unmapped_after_a_timeout(master: str, admin: str):
    """The caller's memory goes away while a native call that it gave up may still be under way."""
    backend = opened(master, admin, transfer_timeout=1.0)
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()  # meanwhile the node was stopped
    libc = ctypes.CDLL(None)
    for number in range(4):
        data = memoryview(bytearray(4 * MIB))
        assert put(backend, key_of(number), data, Deadline(0.1)) is Status.TIMEOUT
        del data
    libc.malloc_trim(0)
    begin = time.monotonic()
    backend.close()
    assert time.monotonic() - begin < PATIENCE


def end_while_calls_hang(master: str, admin: str):
    """The interpreter ends, and with it the library, while threads are inside of it."""
    backend = opened(master, admin)
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()  # meanwhile the master was stopped
    assert get(backend, key_of(1), MIB, Deadline(0.1)) is Status.TIMEOUT
    assert put(backend, key_of(2), blob(MIB), Deadline(0.1)) is Status.TIMEOUT


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:4])
    print("alive", flush=True)  # noqa: T201
