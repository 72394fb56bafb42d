"""Blobs that are in a tier already, coded as the tier codes now: compressed, sealed anew, or plain.

One after the other, and each by itself: what was done stays done when the run ends early, and a run again
goes on with what is left. A blob is taken out before its successor is put; whoever asks between misses it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from sgkv.backends.base import Backend, BlobInfo, GetItem, Part, PutItem, Status
from sgkv.chunk.header import HeaderError, stored_header_size
from sgkv.codecs.coding import Reader, Recipe, Writer
from sgkv.codecs.envelope import (
    CIPHER,
    SALT_BYTES,
    TAG_BYTES,
    Head,
    decode_head,
    encode_head,
    encode_meta,
    is_envelope,
    pack_sizes,
    stated_size,
)
from sgkv.codecs.errors import CodecError, DamagedError, LockedError
from sgkv.codecs.locksmith import Locksmith
from sgkv.codecs.squeezing import Bytes
from sgkv.keys import is_blob_key

_LARGEST = 4 << 30


@dataclass(slots=True)
class Recoded:
    """What a run has done so far, in blobs and in stored bytes."""

    looked_at: int = 0
    rewritten: int = 0
    locked: int = 0
    """Sealed with keys that are not here."""
    damaged: int = 0
    failed: int = 0
    """Could not be read, or not be written again: then they are gone, and computed anew."""
    bytes_before: int = 0
    bytes_after: int = 0
    """Of those that were rewritten."""


def recode(
    tier: Backend,
    blobs: Iterable[BlobInfo],
    recipe: Recipe,
    keys: Locksmith | None,
    *,
    bytes_a_second: float = float("inf"),
    told: Callable[[Recoded], None] = lambda _done: None,
    stopped: Callable[[], bool] = lambda: False,
    sleep: Callable[[float], None] = time.sleep,
) -> Recoded:
    """Rewrite those `blobs` of `tier`, which shows them as they are stored, that `recipe` makes otherwise.

    `keys` open what is sealed. Nothing is quantized that is not, and what is stays as it is. `told` of
    progress after each blob; `stopped` is asked before each. Raises OSError without a key to seal with.
    """
    done, exact = Recoded(), replace(recipe, quantize=("", ""))
    writer = Writer(exact)
    for blob in blobs:
        if stopped():
            break
        if not is_blob_key(blob.key) or not 0 < blob.size <= _LARGEST:
            continue
        done.looked_at += 1
        began = time.monotonic()
        _recode(tier, blob, exact, writer, keys, done)
        told(done)
        sleep(max(0.0, blob.size / bytes_a_second - (time.monotonic() - began)))
    return done


def _recode(
    tier: Backend, blob: BlobInfo, recipe: Recipe, writer: Writer, keys: Locksmith | None, done: Recoded
) -> None:
    raw = memoryview(bytearray(blob.size))
    (status,) = tier.get([GetItem(blob.key, [Part(0, raw)])])
    if status is not Status.OK:
        done.failed += status is not Status.ABSENT
        return
    try:
        made = _made_anew(blob.key, raw, recipe, writer, keys)
    except LockedError:
        done.locked += 1
        return
    except (CodecError, DamagedError, HeaderError):
        done.damaged += 1
        return
    if made is None:
        return
    tier.delete([blob.key])
    (status,) = tier.put([made])
    if not status.ok:
        done.failed += 1
        return
    done.rewritten += 1
    done.bytes_before += blob.size
    done.bytes_after += made.size


def _made_anew(
    key: str, raw: memoryview, recipe: Recipe, writer: Writer, keys: Locksmith | None
) -> PutItem | None:
    """The blob as it is to be stored; None where it is."""
    if not is_envelope(raw):
        header = min(stored_header_size(raw), len(raw))
        return writer.code(PutItem(key, [raw[:header], raw[header:]])) if recipe.codes else None
    head = decode_head(raw[: stated_size(raw)])
    reader = Reader.of(key, head, keys)
    kept = _squeezed_as(head, recipe)
    if kept and _sealed_as(head, key, recipe):
        return None
    places = zip(head.offsets, head.offsets[1:], strict=False)
    stored = [raw[start:stop] for start, stop in places]
    if kept:
        return _resealed(key, reader, stored, recipe)
    sections = [memoryview(reader.section(place, section)) for place, section in enumerate(stored)]
    plain = PutItem(key, [memoryview(bytes(section)) for section in sections])
    return writer.code(plain) if recipe.codes else plain


def _squeezed_as(head: Head, recipe: Recipe) -> bool:
    """Whether its pages stay as they are: made smaller in the same way, or never to be what they were."""
    codecs = head.envelope.codecs
    if any(name.startswith("quantize:") for name in codecs):
        return True
    squeezed = [name for name in codecs if not name.startswith("planes:")]
    return squeezed == ([recipe.squeeze] if recipe.squeeze else [])


def _sealed_as(head: Head, key: str, recipe: Recipe) -> bool:
    envelope = head.envelope
    if recipe.locksmith is None:
        return not envelope.cipher
    return bool(envelope.cipher) and envelope.key_id == recipe.locksmith.data_key(key).key_id


def _resealed(key: str, reader: Reader, stored: Sequence[memoryview], recipe: Recipe) -> PutItem:
    """The same sections, opened, and sealed with the current key or not at all."""
    sections: list[Bytes] = [reader.unsealed(place, section) for place, section in enumerate(stored)]
    sizes = [len(section) for section in sections]
    envelope = msgspec.structs.replace(
        reader.head.envelope, sizes=pack_sizes(sizes), cipher="", key_id="", wrapped=b"", salt=b""
    )
    if recipe.locksmith is not None:
        made = recipe.locksmith.data_key(key)
        envelope = msgspec.structs.replace(
            envelope,
            sizes=pack_sizes([size + TAG_BYTES for size in sizes]),
            cipher=CIPHER,
            key_id=made.key_id,
            wrapped=made.wrapped,
            salt=os.urandom(SALT_BYTES),
        )
    meta = encode_meta(envelope)
    if recipe.locksmith is not None:
        seal = recipe.locksmith.seal(key, envelope, meta)
        sections = [seal.close(place, section) for place, section in enumerate(sections)]
    kept = [memoryview(section).cast("B") for section in sections]
    return PutItem(key, [memoryview(encode_head(meta, kept)), *kept])
