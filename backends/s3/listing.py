"""The bucket's own list: pages of it, and removing many objects at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from sgkv.backends.base import BlobInfo

PLACE = ".probe/"
"""Where an examination makes its objects, below the prefix; no listing of blobs shows them."""

DELETE_BATCH = 1000
"""Keys a DeleteObjects request takes ("DeleteObjects", S3 API)."""


class Listing:
    """ListObjectsV2 and DeleteObjects by boto3, which retries by itself. Any thread."""

    def __init__(self, client: Any, bucket: str, prefix: str, *, directory: bool) -> None:
        """`prefix` is cut off the keys it finds and put before those it removes."""
        self._client = client
        self._bucket = bucket
        self._prefix = prefix
        self._directory = directory

    def pages(self, prefix: str) -> Iterator[list[BlobInfo]]:
        """Blobs whose key starts with `prefix`, a page a request. In no order, as directory buckets list.

        Raises ConnectionError where a page cannot be had: a part must not pass for the whole.
        """
        for page in self._pages(prefix):
            yield [info for info in page if not info.key.startswith(PLACE)]

    def holds(self, key: str) -> bool:
        """Whether a listing shows this object, which is one of an examination's. Raises ConnectionError."""
        return any(info.key == key for page in self._pages(PLACE) for info in page)

    def _pages(self, prefix: str) -> Iterator[list[BlobInfo]]:
        wanted = self._prefix + prefix
        if self._directory:  # these want whole folders
            wanted = wanted[: wanted.rfind("/") + 1]
        paginator = self._client.get_paginator("list_objects_v2")
        try:
            for page in paginator.paginate(Bucket=self._bucket, Prefix=wanted):
                infos = map(self._info, page.get("Contents", ()))
                yield [info for info in infos if info is not None and info.key.startswith(prefix)]
        except (BotoCoreError, ClientError) as error:
            raise ConnectionError(f"listing {self._bucket}/{wanted}: {error}") from error

    def remove(self, keys: Sequence[str]) -> bool:
        """Remove up to `DELETE_BATCH` blobs in one request; False where some may be left."""
        if not keys:
            return True
        objects = [{"Key": self._prefix + key} for key in keys]
        try:
            answer = self._client.delete_objects(
                Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True}
            )
        except (BotoCoreError, ClientError):
            return False
        return not answer.get("Errors")

    def close(self) -> None:
        self._client.close()

    def _info(self, row: dict[str, Any]) -> BlobInfo | None:
        name: str = row["Key"]
        if not name.startswith(self._prefix):
            return None
        return BlobInfo(name[len(self._prefix) :], row["Size"], row["LastModified"].timestamp())
