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

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def absent(self) -> bool:
        return self.status == 404 and self.code in ("", "NoSuchKey", "404")


class Unreachable(Exception):  # noqa: N818 - what the server is, not what we did wrong
    """No whole answer came: refused, reset, cut short, or not HTTP. Another attempt may succeed."""


class Silent(Unreachable):
    """No answer came in time."""


class Abandoned(Exception):  # noqa: N818 - not an error of anyone's
    """The caller's deadline is over."""


class Locked(Exception):  # noqa: N818 - as above
    """There is nothing to sign a request with: no credentials, or no session."""
