"""Asking a daemon how it is, for people and tools."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from sgkv.node import wire
from sgkv.node.lane import Lane

_SECONDS = 5.0


def status_of(socket: Path, token: str = "") -> tuple[wire.Welcome, dict[str, Any]]:
    """Its welcome, and what `report` says.

    Raises RefusedError where it does not let us in; WireError or OSError where none answers.
    """
    until = time.monotonic() + _SECONDS
    lane = Lane(socket, token, until)
    try:
        facts: dict[str, Any] = json.loads(lane.ask(wire.Status(), wire.Report, until).json)
        return lane.welcome, facts
    finally:
        lane.close()
        os.close(lane.descriptor)
