"""What a request can end as."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered."""

    status: int
    """Of HTTP."""
    code: str = ""
    """S3's own name of an error; empty where the answer has none, as one to HEAD."""
    size: int = 0
    """Bytes of the object where it is known."""
    etag: str = ""
    filled: bool = False
    """GET: every buffer was filled."""
    region: str = ""
    """Of the bucket, where an error says that it is another one than was asked in."""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def absent(self) -> bool:
        return self.status == 404 and self.code in ("", "NoSuchKey", "404")

    @property
    def said(self) -> str:
        """An error, for people."""
        elsewhere = f": the bucket is in {self.region}, set `region` to that" if self.region else ""
        return f"{self.status} {self.code}".strip() + elsewhere


class Locked(Exception):  # noqa: N818 - not an error of anyone's
    """There is nothing to sign a request with: no credentials, or no session."""
