"""Stores over a bucket, and what is in it."""

from __future__ import annotations

from sgkv.backends.s3 import S3Backend, S3Options


def stored_bytes(options: S3Options) -> int:
    """Of all blobs below the prefix, as somebody else sees them."""
    reader = S3Backend(options)
    try:
        return sum(info.size for info in reader.scan())
    finally:
        reader.close()
