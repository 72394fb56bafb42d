"""The bucket's own list: pages of it, and removing many objects at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from sgkv.backends.base import BlobInfo
from sgkv.backends.remote.listing import Page
from sgkv.backends.s3.clocks import served_at

PLACE = ".probe/"
"""Where an examination makes its objects, below the prefix; no listing of blobs shows them."""


class Listing:
    """ListObjectsV2 and DeleteObjects by boto3, which retries by itself. Any thread."""

    def __init__(self, client: Any, bucket: str, prefix: str, *, directory: bool) -> None:
        """`prefix` is cut off the keys it finds and put before those it removes."""
        self._client = client
        self._bucket = bucket
        self._prefix = prefix
        self._directory = directory

    def pages(self, prefix: str) -> Iterator[Page]:
        """Blobs whose key starts with `prefix`, a page a request. In no order, as directory buckets list.

        Raises ConnectionError where a page cannot be had: a part must not pass for the whole.
        """
        for page in self._pages(prefix):
            yield Page([blob for blob in page.blobs if not blob.key.startswith(PLACE)], page.now)

    def holds(self, key: str) -> bool:
        """Whether a listing shows this object, which is one of an examination's. Raises ConnectionError."""
        return any(blob.key == key for page in self._pages(PLACE) for blob in page.blobs)

    def _pages(self, prefix: str) -> Iterator[Page]:
        wanted = self._prefix + prefix
        if self._directory:  # these want whole folders
            wanted = wanted[: wanted.rfind("/") + 1]
        paginator = self._client.get_paginator("list_objects_v2")
        try:
            for answer in paginator.paginate(Bucket=self._bucket, Prefix=wanted):
                _require_listing(answer)
                infos = map(self._info, answer.get("Contents", ()))
                blobs = [info for info in infos if info is not None and info.key.startswith(prefix)]
                yield Page(blobs, served_at(answer))
        except (BotoCoreError, ClientError, LookupError, ValueError) as error:
            raise ConnectionError(f"listing {self._bucket}/{wanted}: {error}") from error

    def remove(self, keys: Sequence[str]) -> None:
        """Remove up to `DELETE_BATCH` blobs in one request. Raises ConnectionError where some may be left."""
        if not keys:
            return
        names = {self._prefix + key for key in keys}
        try:  # not Quiet: an answer without a body would say then that all are gone
            answer = self._client.delete_objects(
                Bucket=self._bucket, Delete={"Objects": [{"Key": name} for name in names]}
            )
        except (BotoCoreError, ClientError) as error:
            raise ConnectionError(f"removing from {self._bucket}: {error}") from error
        for left in answer.get("Errors", ()):
            raise ConnectionError(f"removing {left.get('Key')} from {self._bucket}: {left.get('Code')}")
        unsaid = names - {row.get("Key") for row in answer.get("Deleted", ())}
        if unsaid:
            raise ConnectionError(f"removing from {self._bucket}: of {len(unsaid)} objects nothing is said")

    def close(self) -> None:
        self._client.close()

    def _info(self, row: dict[str, Any]) -> BlobInfo | None:
        name: str = row["Key"]
        if not name.startswith(self._prefix):
            return None
        return BlobInfo(name[len(self._prefix) :], row["Size"], row["LastModified"].timestamp())


def _require_listing(answer: Mapping[str, Any]) -> None:
    """Raises ConnectionError for what boto3 takes for an empty listing, or for the end of one, and is none.

    An answer without a body parses as one without objects, and so does another document. S3 always says
    whether there is more, and then from where ("ListObjectsV2", S3 API).
    """
    if "IsTruncated" not in answer:
        raise ConnectionError("an answer that is no listing")
    if answer["IsTruncated"] and not answer.get("NextContinuationToken"):
        raise ConnectionError("a listing that breaks off")
