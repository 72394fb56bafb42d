"""Encrypted connections: whom they trust, and that as much goes through them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.testing.certificates import self_signed
from sgkv.testing.s3 import DIRECTORY_BUCKET
from sgkv.testing.s3.double import S3Double
from tests.backends.blobs import blob, get, key_of, put
from tests.s3.conftest import Open

pytestmark = pytest.mark.filterwarnings("ignore:Unverified HTTPS request")  # of the double itself

SIZE = 3 << 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(authority: Path) -> Iterator[S3Double]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    with S3Double(context) as server:
        yield server


@pytest.mark.parametrize("plane", ["thin", "boto3"])
@pytest.mark.parametrize("trusting", [True, False])
def test_all_goes_through(
    secure: S3Double, authority: Path, open_s3: Open, prefix: str, plane: str, trusting: bool
) -> None:
    verify = str(authority) if trusting else False
    backend = open_s3(secure.options(DIRECTORY_BUCKET, prefix=prefix, plane=plane, verify=verify))
    data = blob(SIZE)
    pages = [memoryview(data)[at : at + 65_536] for at in range(0, SIZE, 65_536)]
    assert backend.put([PutItem(key_of(1), pages)], Deadline(20.0)) == [Status.OK]
    into = bytearray(SIZE)
    parts = [Part(at, memoryview(into)[at : at + 65_536]) for at in range(0, SIZE, 65_536)]
    assert backend.get([GetItem(key_of(1), parts)], Deadline(20.0)) == [Status.OK]
    assert into == data
    assert backend.contains([key_of(1), key_of(2)]) == [True, False]


@pytest.mark.parametrize("plane", ["thin", "boto3"])
def test_a_stranger_is_not_trusted(secure: S3Double, open_s3: Open, prefix: str, plane: str) -> None:
    backend = open_s3(secure.options(prefix=prefix, plane=plane, list_seconds=None))
    assert put(backend, key_of(1), b"secret") is Status.ERROR
    assert get(backend, key_of(1), 6) is Status.ERROR
