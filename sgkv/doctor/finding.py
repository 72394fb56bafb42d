"""One answer of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much an answer matters."""

    OK = "ok"
    NOTE = "note"
    """Works, but perhaps not as meant, or not as well as it could."""
    PROBLEM = "problem"
    """Something will not work, or will cache nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found there, and what to change."""

    topic: str
    """A few words, e.g. ``SGLang flags``: findings of one topic are shown together."""
    level: Level
    what: str
    fix: str = ""
    """What to change; empty where nothing needs to, or `what` says it."""


def ok(topic: str, what: str) -> Finding:
    """All is well there."""
    return Finding(topic, Level.OK, what)


def note(topic: str, what: str, fix: str = "") -> Finding:
    """Worth knowing."""
    return Finding(topic, Level.NOTE, what, fix)


def problem(topic: str, what: str, fix: str = "") -> Finding:
    """To be mended."""
    return Finding(topic, Level.PROBLEM, what, fix)
