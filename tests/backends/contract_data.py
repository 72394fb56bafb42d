"""Bytes in, bytes out (rules 2, 3, 5)."""

from __future__ import annotations

import pytest

from sgkv.backends.base import Backend, GetItem, Part, PutItem, Status
from tests.backends.blobs import NAMESPACE, blob, cut, get, key_of, put, put_item

KEY = key_of(1)


class DataTests:
    """What is put can be got, in whole and in parts, and nothing else is OK."""

    def test_unknown_key_is_absent(self, backend: Backend) -> None:
        assert get(backend, KEY, 10) is Status.ABSENT
        assert backend.contains([KEY]) == [False]

    @pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 70_000, (1 << 20) + 13])
    def test_what_is_put_is_got(self, backend: Backend, size: int) -> None:
        assert put(backend, KEY, blob(size)) is Status.OK
        assert backend.contains([KEY]) == [True]
        assert get(backend, KEY, size) == blob(size)

    def test_buffers_are_concatenated(self, backend: Backend) -> None:
        data = blob(100_000)
        assert backend.put([PutItem(KEY, cut(data, [4096, 0, 1, 65_536]))]) == [Status.OK]
        assert get(backend, KEY, len(data)) == data

    def test_more_buffers_than_one_system_call_takes(self, backend: Backend) -> None:
        data = blob(3000 * 7)
        assert backend.put([PutItem(KEY, cut(data, [7] * 2999))]) == [Status.OK]
        into = bytearray(len(data))
        parts = [Part(7 * at, piece) for at, piece in enumerate(cut(into, [7] * 2999))]
        assert backend.get([GetItem(KEY, parts)]) == [Status.OK]
        assert into == data

    def test_parts_land_where_they_are_wanted(self, backend: Backend) -> None:
        data = blob(50_000)
        put(backend, KEY, data)
        first, second, third = bytearray(100), bytearray(200), bytearray(4096)
        parts = [Part(10, memoryview(first)), Part(110, memoryview(second)), Part(40_000, memoryview(third))]
        assert backend.get([GetItem(KEY, parts)]) == [Status.OK]
        assert first == data[10:110]
        assert second == data[110:310]
        assert third == data[40_000:44_096]

    def test_part_into_the_middle_of_a_buffer(self, backend: Backend) -> None:
        put(backend, KEY, blob(1000))
        into = bytearray(b"." * 300)
        assert backend.get([GetItem(KEY, [Part(500, memoryview(into)[100:200])])]) == [Status.OK]
        assert into == b"." * 100 + blob(1000)[500:600] + b"." * 100

    def test_part_past_the_end_is_short(self, backend: Backend) -> None:
        put(backend, KEY, blob(1000))
        parts = [Part(0, memoryview(bytearray(10))), Part(995, memoryview(bytearray(6)))]
        assert backend.get([GetItem(KEY, parts)]) == [Status.SHORT]
        assert get(backend, KEY, 1001) is Status.SHORT

    def test_a_whole_blob_of_no_bytes(self, backend: Backend) -> None:
        assert put(backend, KEY, b"") is Status.OK
        assert backend.contains([KEY]) == [True]
        assert get(backend, KEY, 1) is Status.SHORT

    def test_statuses_keep_the_order_of_the_items(self, backend: Backend) -> None:
        keys = [key_of(number) for number in range(9)]
        backend.put([put_item(key, blob(5000, at)) for at, key in enumerate(keys) if at % 2])
        buffers = [bytearray(5000) for _ in keys]
        items = [GetItem(key, [Part(0, memoryview(into))]) for key, into in zip(keys, buffers, strict=True)]
        assert backend.get(items) == [Status.OK if at % 2 else Status.ABSENT for at in range(9)]
        assert all(into == blob(5000, at) for at, into in enumerate(buffers) if at % 2)
        assert backend.contains(keys) == [bool(at % 2) for at in range(9)]

    def test_empty_batches(self, backend: Backend) -> None:
        assert backend.put([]) == backend.get([]) == []
        assert backend.contains([]) == backend.delete([]) == backend.pin([]) == []

    def test_putting_an_existing_key_changes_nothing(self, backend: Backend) -> None:
        put(backend, KEY, b"first")
        assert put(backend, KEY, b"other") is Status.EXISTS
        assert get(backend, KEY, 5) == b"first"

    def test_a_key_twice_in_one_batch(self, backend: Backend) -> None:
        statuses = backend.put([put_item(KEY, b"one"), put_item(KEY, b"two")])
        assert sorted(status.value for status in statuses) == ["exists", "ok"]
        assert get(backend, KEY, 3) == (b"one" if statuses[0] is Status.OK else b"two")

    def test_read_only_sources_and_writable_ones(self, backend: Backend) -> None:
        data = blob(200_000)
        assert backend.put([PutItem(KEY, [memoryview(data), memoryview(bytearray(data))])]) == [Status.OK]
        assert get(backend, KEY, 2 * len(data)) == data + data

    def test_prepare_runs_before_the_buffers_are_read(self, backend: Backend) -> None:
        header = bytearray(16)

        def prepare() -> None:
            header[:] = b"0123456789abcdef"

        item = PutItem(KEY, [memoryview(header), memoryview(b"body")], prepare)
        assert backend.put([item]) == [Status.OK]
        assert get(backend, KEY, 20) == b"0123456789abcdefbody"

    def test_prepare_is_not_called_for_an_existing_key(self, backend: Backend) -> None:
        put(backend, KEY, b"there")
        calls: list[int] = []
        item = PutItem(KEY, [memoryview(b"again")], lambda: calls.append(1))
        assert backend.put([item]) == [Status.EXISTS]
        assert not calls

    def test_a_failing_prepare_is_an_error_of_its_item_only(self, backend: Backend) -> None:
        def prepare() -> None:
            raise OSError("no pages")

        items = [PutItem(KEY, [memoryview(b"bad")], prepare), put_item(key_of(2), b"good")]
        assert backend.put(items) == [Status.ERROR, Status.OK]
        assert backend.contains([KEY, key_of(2)]) == [False, True]

    def test_check_sees_the_bytes_and_decides(self, backend: Backend) -> None:
        data = blob(20_000)
        put(backend, KEY, data)
        into = bytearray(len(data))
        parts = [Part(0, memoryview(into))]
        assert backend.get([GetItem(KEY, parts, lambda: into == data)]) == [Status.OK]
        assert backend.get([GetItem(KEY, parts, lambda: into != data)]) == [Status.CORRUPT]

    def test_a_failing_check_is_corrupt(self, backend: Backend) -> None:
        def check() -> bool:
            raise ValueError("not a header")

        put(backend, KEY, b"data")
        item = GetItem(KEY, [Part(0, memoryview(bytearray(4)))], check)
        assert backend.get([item]) == [Status.CORRUPT]

    def test_check_is_not_asked_about_what_is_not_there(self, backend: Backend) -> None:
        calls: list[int] = []

        def check() -> bool:
            calls.append(1)
            return True

        put(backend, KEY, b"data")
        short = GetItem(KEY, [Part(0, memoryview(bytearray(5)))], check)
        absent = GetItem(key_of(2), [Part(0, memoryview(bytearray(5)))], check)
        assert backend.get([short, absent]) == [Status.SHORT, Status.ABSENT]
        assert not calls

    def test_delete(self, backend: Backend) -> None:
        put(backend, KEY, b"data")
        assert backend.delete([KEY, key_of(2)]) == [True, False]
        assert backend.contains([KEY]) == [False]
        assert get(backend, KEY, 4) is Status.ABSENT

    def test_a_deleted_key_can_be_put_anew(self, backend: Backend) -> None:
        put(backend, KEY, b"old")
        backend.delete([KEY])
        assert put(backend, KEY, b"newer") is Status.OK
        assert get(backend, KEY, 5) == b"newer"

    def test_delete_prefix_takes_all_below_and_nothing_beside(self, backend: Backend) -> None:
        keys = ["ab/c/1", "ab/c/2", "ab/p/1", "abc/c/1", "a/ab/1"]
        backend.put([put_item(key, key.encode()) for key in keys])
        assert backend.delete_prefix("ab/c/") is True
        assert backend.contains(keys) == [False, False, True, True, True]
        assert backend.delete_prefix("ab/") is True
        assert backend.contains(keys) == [False, False, False, True, True]
        assert get(backend, "ab/c/1", 6) is Status.ABSENT
        assert get(backend, "abc/c/1", 7) == b"abc/c/1"

    def test_a_dropped_prefix_can_be_used_again(self, backend: Backend) -> None:
        put(backend, KEY, b"old")
        backend.delete_prefix(f"{NAMESPACE}/")
        assert backend.delete_prefix("never-there/") is True
        assert put(backend, KEY, b"new") is Status.OK
        assert get(backend, KEY, 3) == b"new"

    def test_scan_names_every_blob_below_a_prefix(self, backend: Backend) -> None:
        sizes = {"ab/c/1": 10, "ab/c/2": 5000, "ab/p/1": 1, "b/c/1": 7}
        backend.put([put_item(key, blob(size)) for key, size in sizes.items()])
        assert {info.key: info.size for info in backend.scan()} == sizes
        assert {info.key for info in backend.scan("ab/c/")} == {"ab/c/1", "ab/c/2"}
        assert {info.key for info in backend.scan("ab/")} == {"ab/c/1", "ab/c/2", "ab/p/1"}
        assert not list(backend.scan("zz/"))

    def test_quarantined_blobs_are_gone(self, backend: Backend) -> None:
        put(backend, KEY, b"bad")
        backend.quarantine([KEY, key_of(2)])
        assert backend.contains([KEY]) == [False]
        assert put(backend, KEY, b"good") is Status.OK
