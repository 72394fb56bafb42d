"""Encrypted connections: whom they trust, what they show, and that as much goes through them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.testing.certificates import self_signed
from sgkv.testing.valkey import ValkeyServer
from tests.backends.blobs import blob, get, key_of, put
from tests.valkey.conftest import Open

KEY = key_of(1)
SIZE = 3 << 20
PAGE = 65_536


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure(authority: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """It wants a certificate of its clients, too."""
    pem = str(authority)
    settings = {"tls-cert-file": pem, "tls-key-file": pem, "tls-ca-cert-file": pem}
    options = {"tls": True, "verify": pem, "certificate": pem, "private_key": pem}
    with ValkeyServer(tmp_path_factory.mktemp("secure"), settings=settings, **options) as running:
        yield running


@pytest.mark.parametrize("trusting", [True, False])
def test_all_goes_through(secure: ValkeyServer, open_valkey: Open, prefix: str, trusting: bool) -> None:
    verify = secure.options.verify if trusting else False
    backend = open_valkey(replace(secure.options, prefix=prefix, verify=verify))
    data = blob(SIZE)
    pages = [memoryview(data)[at : at + PAGE] for at in range(0, SIZE, PAGE)]
    assert backend.put([PutItem(KEY, pages)], Deadline(20.0)) == [Status.OK]
    into = bytearray(SIZE)
    parts = [Part(at, memoryview(into)[at : at + PAGE]) for at in range(0, SIZE, PAGE)]
    assert backend.get([GetItem(KEY, parts)], Deadline(20.0)) == [Status.OK]
    assert into == data
    assert backend.contains([KEY, key_of(2)]) == [True, False]
    assert [info.key for info in backend.scan()] == [KEY]


@pytest.mark.parametrize(
    "change",
    [{"verify": True}, {"certificate": None, "private_key": None}, {"tls": False}],
    ids=["a stranger", "nothing to show", "in the clear"],
)
def test_what_does_not_fit_is_an_error(secure: ValkeyServer, open_valkey: Open, change: dict) -> None:
    backend = open_valkey(replace(secure.options, **change))
    assert put(backend, KEY, b"secret") is Status.ERROR
    assert get(backend, KEY, 6) is Status.ERROR
