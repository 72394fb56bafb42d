"""What time it is for the server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any


def served_at(answer: Mapping[str, Any]) -> float:
    """Unix seconds by the clock of the server that gave boto3 this answer; by ours where it does not say.

    Whole seconds, rounded down ("Date", RFC 9110).
    """
    said = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        return parsedate_to_datetime(said).timestamp()
    except ValueError:
        return time.time()
