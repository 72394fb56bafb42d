"""Named places in the code where a test may stop the world.

Nothing is armed in production: a place costs one call of a function that does nothing. A crash test
arms, in a process of its own, an action that kills the process at the n-th pass of one place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Action = Callable[[str], None]

POINTS: Final = (
    "put.claimed",
    "put.opened",
    "put.written",
    "put.filled",
    "put.folder",
    "put.renamed",
    "put.indexed",
    "evict.chosen",
    "evict.unlinked",
    "evict.done",
    "delete.forgotten",
    "delete.unlinked",
    "quarantine.forgotten",
    "quarantine.moved",
    "quarantine.trimmed",
    "prefix.begun",
    "prefix.moved",
    "prefix.forgotten",
    "trash.unlinked",
    "trash.emptied",
    "scan.begun",
    "scan.found",
    "scan.walked",
    "scan.loaded",
    "behind.taken",
    "behind.written",
    "behind.done",
    "promote.reserved",
    "promote.read",
    "promote.committed",
    "clear.begun",
    "clear.tier",
)
"""Every place there is; a crash test kills at each of them."""


def _nothing(name: str) -> None:
    pass


passing: Action = _nothing
"""Call it as `failpoints.passing("put.opened")`, never by a name imported from here: `arm` replaces it."""


def arm(action: Action) -> None:
    """Call `action` with the name of each place that is passed from now on, in the thread that passes."""
    global passing  # noqa: PLW0603 - one switch for the process is the point
    passing = action


def disarm() -> None:
    """Make every place do nothing again."""
    arm(_nothing)
