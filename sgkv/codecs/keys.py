"""Where data keys come from: providers that wrap them, so that only wrapped ones are ever stored.

A provider knows key-encrypting keys by their ids. One of them is current: it wraps new data keys; the
others still open what they wrapped, until they are dropped. Dropping the last key that opens a data key
makes everything sealed with that unreadable for good, wherever copies of it are.
"""

from __future__ import annotations

import base64
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sgkv.codecs.envelope import KEY_BYTES
from sgkv.codecs.errors import KeyConfigError, LockedError


class DataKey(NamedTuple):
    """A new data key."""

    key: bytearray
    key_id: str
    wrapped: bytes

    def __repr__(self) -> str:
        """Without the key, wherever this may end."""
        return f"DataKey(of {self.key_id!r})"


class KeyProvider(ABC):
    """Makes data keys and opens them again. Any thread; may take as long as a call over the network."""

    @abstractmethod
    def new(self, context: Mapping[str, str]) -> DataKey:
        """A random data key of `KEY_BYTES`, wrapped with the current key.

        `context` says what it is for (tenant, namespace) and must be the same when it is opened, where
        the provider can bind it. Raises OSError where the provider cannot be reached.
        """

    @abstractmethod
    def open(self, key_id: str, wrapped: bytes, context: Mapping[str, str]) -> bytearray:
        """The data key. Raises LockedError without its key, OSError where it cannot be asked for."""

    def close(self) -> None:
        """Forget every key, as far as Python lets go of memory."""


class HeldKeys(KeyProvider):
    """Keys that this process holds: wraps by AES key wrap (RFC 3394)."""

    def __init__(self, current: str, keys: Mapping[str, bytes]) -> None:
        """Keys of 32 bytes by id. Raises KeyConfigError where `current` is none of them."""
        if current not in keys:
            raise KeyConfigError(f"the current key is {current!r}, and there is none of that id")
        self._current = current
        self._keys = {key_id: bytearray(_checked(key_id, key)) for key_id, key in keys.items()}

    def new(self, context: Mapping[str, str]) -> DataKey:
        from cryptography.hazmat.primitives.keywrap import aes_key_wrap

        if self._current not in self._keys:
            raise LockedError("the keys are closed")
        key = os.urandom(KEY_BYTES)
        return DataKey(bytearray(key), self._current, aes_key_wrap(bytes(self._keys[self._current]), key))

    def open(self, key_id: str, wrapped: bytes, context: Mapping[str, str]) -> bytearray:
        from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

        if key_id not in self._keys:
            raise LockedError(f"there is no key {key_id!r} here")
        try:
            return bytearray(aes_key_unwrap(bytes(self._keys[key_id]), wrapped))
        except (InvalidUnwrap, ValueError) as error:
            raise LockedError(f"the key {key_id!r} here is another one") from error

    def close(self) -> None:
        keys, self._keys = self._keys, {}
        for key in keys.values():
            key[:] = bytes(len(key))


class KmsKeys(KeyProvider):
    """A key of AWS KMS, by `GenerateDataKey` and `Decrypt`, with the context as encryption context.

    What a blob says of its key is not believed: whoever can write blobs could name a key of another account,
    which we may use and they know.
    """

    def __init__(self, key_id: str, client: Any) -> None:
        """`key_id` as KMS takes it: an id, ARN or alias; `client` is boto3's."""
        self._key_id = key_id
        self._client = client

    def new(self, context: Mapping[str, str]) -> DataKey:
        made = self._ask(
            "generate_data_key", KeyId=self._key_id, KeySpec="AES_256", EncryptionContext=context
        )
        return DataKey(bytearray(made["Plaintext"]), self._key_id, made["CiphertextBlob"])

    def open(self, key_id: str, wrapped: bytes, context: Mapping[str, str]) -> bytearray:
        opened = self._ask("decrypt", KeyId=self._key_id, CiphertextBlob=wrapped, EncryptionContext=context)
        return bytearray(opened["Plaintext"])

    def _ask(self, call: str, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, call)(**arguments)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _REFUSALS:
                raise LockedError(f"KMS refuses: {code}") from error
            raise OSError(f"KMS: {error}") from error
        except BotoCoreError as error:
            raise OSError(f"KMS: {error}") from error


_REFUSALS = frozenset(
    {
        "AccessDeniedException",
        "DisabledException",
        "IncorrectKeyException",
        "InvalidCiphertextException",
        "KMSInvalidStateException",
        "NotFoundException",
    }
)
"""Errors of KMS that another try will not change."""


def parse_keys(text: str, origin: str) -> HeldKeys:
    """Keys written as ``{"current": ID, "keys": {ID: base64 of 32 bytes}}``.

    Raises KeyConfigError, which never shows a key.
    """
    return HeldKeys(*parse_document(text, origin))


def read_keys(path: Path) -> HeldKeys:
    """Keys of a file. Raises KeyConfigError, also where others may read the file."""
    return HeldKeys(*read_document(path))


def read_document(path: Path) -> tuple[str, dict[str, bytes]]:
    """(id of the current key, keys by id) of a file. Raises KeyConfigError as `read_keys`."""
    try:
        if path.stat().st_mode & 0o077:
            raise KeyConfigError(f"{path} may be read by others: chmod 600 {path}")
        text = path.read_text()
    except (OSError, UnicodeError) as error:
        raise KeyConfigError(f"{path} cannot be read: {error}") from error
    return parse_document(text, str(path))


def parse_document(text: str, origin: str) -> tuple[str, dict[str, bytes]]:
    """(id of the current key, keys by id). Raises KeyConfigError, which never shows a key."""
    try:
        document = json.loads(text)
        keys = {str(name): base64.b64decode(key, validate=True) for name, key in document["keys"].items()}
        return str(document["current"]), keys
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KeyConfigError(
            f'{origin} holds no keys: write {{"current": ID, "keys": {{ID: base64 of {KEY_BYTES} bytes}}}}, '
            "or let `sgkv keys new` do it"
        ) from None  # the error may quote a key


def _checked(key_id: str, key: bytes) -> bytes:
    if len(key) != KEY_BYTES:
        raise KeyConfigError(f"the key {key_id!r} has {len(key)} bytes, not {KEY_BYTES}")
    return key
