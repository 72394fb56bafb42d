"""Data keys wrapped by AWS KMS, which moto stands in for: AWS itself cannot be had here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from sgkv.backends.base import Backend, Status
from sgkv.codecs.backend import CodedBackend
from sgkv.codecs.coding import Recipe
from sgkv.codecs.errors import LockedError
from sgkv.codecs.keys import KmsKeys
from sgkv.codecs.locksmith import Locksmith
from tests.codecs.conftest import chunk, outcome, put


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield boto3.client("kms", region_name="us-east-1")


@pytest.fixture
def key_id(kms: Any) -> str:
    return str(kms.create_key()["KeyMetadata"]["KeyId"])


def sealing(disk: Backend, kms: Any, key_id: str, tenant: str = "tenant") -> CodedBackend:
    return CodedBackend(disk, Recipe(locksmith=Locksmith(KmsKeys(key_id, kms), tenant)), sealed_only=True)


def test_another_process_opens_what_one_sealed(disk: Backend, kms: Any, key_id: str) -> None:
    of = chunk()
    put(sealing(disk, kms, key_id), of)
    assert outcome(sealing(disk, kms, key_id), of) is Status.OK


def test_the_data_key_is_bound_to_its_tenant(disk: Backend, kms: Any, key_id: str) -> None:
    """KMS itself refuses, because its encryption context differs."""
    of = chunk()
    put(sealing(disk, kms, key_id, "one"), of)
    assert outcome(sealing(disk, kms, key_id, "another"), of) is Status.LOCKED


def test_a_key_that_a_blob_names_is_not_used_unless_it_is_ours(disk: Backend, kms: Any, key_id: str) -> None:
    """Else a forger, whose key we may use, could seal what we would serve."""
    theirs, of = str(kms.create_key()["KeyMetadata"]["KeyId"]), chunk()
    put(sealing(disk, kms, theirs), of)
    assert outcome(sealing(disk, kms, key_id), of) is Status.LOCKED
    assert outcome(sealing(disk, kms, theirs), of) is Status.OK


def test_a_key_that_may_not_be_used_locks(kms: Any, key_id: str) -> None:
    with Stubber(kms) as stub:
        stub.add_client_error("decrypt", "AccessDeniedException")
        with pytest.raises(LockedError):
            KmsKeys(key_id, kms).open(key_id, b"wrapped", {})


def test_a_key_is_asked_for_once(
    disk: Backend, kms: Any, key_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again to seal with what was just made, nor for each blob where it may not be used."""
    asked, decrypt = [], kms.decrypt
    monkeypatch.setattr(kms, "decrypt", lambda **given: asked.append(given) or decrypt(**given))
    chunks = [chunk(seed=seed) for seed in range(5)]
    writer = sealing(disk, kms, key_id)
    put(writer, *chunks)
    assert [outcome(writer, of) for of in chunks] == [Status.OK] * 5
    assert not asked
    stranger = sealing(disk, kms, key_id, "another")
    assert [outcome(stranger, of) for of in chunks] == [Status.LOCKED] * 5
    assert len(asked) == 1


def test_kms_that_does_not_answer_is_trouble_of_the_tier(disk: Backend, kms: Any, key_id: str) -> None:
    coded = sealing(disk, kms, key_id)
    with Stubber(kms) as stub:
        stub.add_client_error("generate_data_key", "ThrottlingException")
        assert put(coded, chunk()) == [Status.ERROR]
    assert list(disk.scan()) == []
