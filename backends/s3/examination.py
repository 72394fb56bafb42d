"""What a bucket can do, found out by trying."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Abandoned, Unreachable
from sgkv.backends.remote.spans import Window
from sgkv.backends.s3.listing import PLACE, Listing
from sgkv.backends.s3.plane import DataPlane
from sgkv.backends.s3.replies import Locked, Reply

_SECONDS = 30.0
_BODY = bytes(range(64))
_WRONG_CRC32 = "AAAAAA=="
_TROUBLE = (429, 500, 502, 503, 504)

_Ask: TypeAlias = Callable[[], Reply]
_Judge: TypeAlias = Callable[[Reply], bool]


@dataclass(frozen=True, slots=True)
class Finding:
    """One ability."""

    what: str
    able: bool
    needed: bool
    """Without it the tier serves nothing; without another it only does less."""
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, in the order it was tried."""

    findings: Sequence[Finding]

    @property
    def usable(self) -> bool:
        return all(finding.able for finding in self.findings if finding.needed)

    def able(self, what: str) -> bool:
        """Whether this was tried and works."""
        return any(finding.what == what and finding.able for finding in self.findings)

    def __str__(self) -> str:
        """On one line, for a log."""
        return "; ".join(f"{found.what}: {found.detail}" for found in self.findings)


class Examination:
    """Makes one small object, tries what the tier will do with others, and removes it."""

    def __init__(
        self, plane: DataPlane, listing: Listing, prefix: str, headers: Mapping[str, str], sessions: str
    ) -> None:
        """`headers` go with each write; `sessions` says how requests are authorized, for the report."""
        self._plane = plane
        self._listing = listing
        self._key = f"{PLACE}{uuid.uuid4().hex}"
        self._name = prefix + self._key
        self._headers = headers
        self._sessions = sessions
        self._deadline = Deadline(_SECONDS)

    def run(self) -> Report:
        """Blocks for a few round trips, half a minute at most; never raises."""
        findings: list[Finding] = []
        for finding in self._findings():
            findings.append(finding)
            if finding.needed and not finding.able:
                break
        return Report(findings)

    def _findings(self) -> Iterator[Finding]:
        yield self._asked("access", self._plane_head, lambda reply: reply.absent, self._sessions)
        yield self._asked("write", lambda: self._put({}), lambda reply: reply.ok, "yes")
        try:
            yield self._ranges()
            yield self._conditional()
            yield self._checksums()
            yield self._lists()
        finally:
            ends = Deadline(_SECONDS)
            self._asked("delete", lambda: self._plane.delete(self._name, ends), lambda reply: reply.ok, "yes")

    def _plane_head(self) -> Reply:
        return self._plane.head(self._name, self._deadline)

    def _put(self, headers: Mapping[str, str]) -> Reply:
        return self._plane.put(self._name, [memoryview(_BODY)], {**self._headers, **headers}, self._deadline)

    def _ranges(self) -> Finding:
        into = bytearray(16)
        window = Window(16, [memoryview(into)])
        found = self._asked(
            "ranges", lambda: self._plane.get(self._name, window, self._deadline), lambda r: r.filled, "yes"
        )
        if found.able and into != _BODY[16:32]:
            return Finding("ranges", able=False, needed=True, detail="other bytes than were written")
        return found

    def _conditional(self) -> Finding:
        reply = _answer(lambda: self._put({"If-None-Match": "*"}))
        if not isinstance(reply, Reply) or reply.status in _TROUBLE:  # says nothing of the bucket's abilities
            return Finding(
                "conditional writes", able=True, needed=False, detail=f"not found out ({_said(reply)})"
            )
        able = reply.status in (409, 412)
        detail = "yes" if able else f"no ({_said(reply)}): of two writers of a key the last one wins"
        return Finding("conditional writes", able=able, needed=False, detail=detail)

    def _checksums(self) -> Finding:
        reply = _answer(lambda: self._put({"x-amz-checksum-crc32": _WRONG_CRC32}))
        able = isinstance(reply, Reply) and reply.status == 400
        detail = "checked at each write" if able else "not checked by the server; readers check their own"
        return Finding("checksums", able=able, needed=False, detail=detail)

    def _lists(self) -> Finding:
        try:
            able = self._listing.holds(self._key)
            detail = "yes" if able else "what was written is not listed"
        except ConnectionError as error:
            able, detail = False, str(error)
        return Finding("listing", able=able, needed=False, detail=detail)

    def _asked(self, what: str, ask: _Ask, is_right: _Judge, detail: str) -> Finding:
        reply = _answer(ask)
        able = isinstance(reply, Reply) and is_right(reply)
        return Finding(what, able=able, needed=True, detail=detail if able else _said(reply))


def _answer(ask: _Ask) -> Reply | str:
    try:
        return ask()
    except Abandoned:
        return f"no answer within {_SECONDS:.0f} s"
    except (Unreachable, Locked) as error:
        return str(error)


def _said(reply: Reply | str) -> str:
    return reply if isinstance(reply, str) else reply.said
