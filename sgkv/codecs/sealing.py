"""Sealing the sections of one blob: AES-256-GCM, with a key of its own for each blob.

A data key, of one namespace and tenant, is not used itself: HKDF-SHA256 (RFC 5869) makes a key for each
blob of it, a random salt and the blob's name, so that counters serve as nonces and no two messages ever
share key and nonce, however many blobs there are (NIST SP 800-38D, section 8.2.1). What is sealed is
bound to the blob's name, to every field of its envelope and to its place in it: a section that was moved,
or taken from another blob, or whose head was changed, does not open.
"""

from __future__ import annotations

from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sgkv.codecs.envelope import KEY_BYTES
from sgkv.codecs.errors import SealError

_NONCE_BYTES = 12
_PURPOSE = b"sgkv envelope 1\0"


class Seal:
    """Seals and opens the sections of one blob; any thread."""

    def __init__(self, data_key: bytes, salt: bytes, key: str, meta: bytes) -> None:
        """`key` is the blob's name, `meta` its envelope's fields as they are stored."""
        derive = HKDF(SHA256(), KEY_BYTES, salt, _PURPOSE + key.encode())
        self._cipher = AESGCM(derive.derive(data_key))
        self._bound = sha256(_PURPOSE + len(meta).to_bytes(8, "little") + meta + key.encode()).digest()

    def close(self, place: int, data: bytes | memoryview) -> bytes:
        """Section number `place`, sealed: `TAG_BYTES` longer."""
        return self._cipher.encrypt(_nonce(place), data, self._bound)

    def open(self, place: int, data: bytes | memoryview) -> bytes:
        """What was sealed there. Raises SealError."""
        try:
            return self._cipher.decrypt(_nonce(place), data, self._bound)
        except InvalidTag as error:
            raise SealError(f"section {place} does not open") from error


def _nonce(place: int) -> bytes:
    return place.to_bytes(_NONCE_BYTES, "big")
