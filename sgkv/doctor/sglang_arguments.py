"""The arguments of an SGLang server that matter here, from its command line or from the server itself.

Facts of SGLang 0.5.23: ``/server_info`` answers with the server's arguments, resolved; names and defaults
as in `srt/arg_groups`.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SECONDS = 10.0
_MOST_BYTES = 16 << 20


class ServerError(Exception):
    """The server did not tell; the message says why."""


@dataclass(frozen=True, slots=True)
class SglangArguments:
    """Arguments by their names in SGLang."""

    values: Mapping[str, Any]
    live: bool
    """As a running server has resolved them, so that sgkv's plugin has done its work already."""

    @classmethod
    def of_flags(cls, flags: Sequence[str]) -> SglangArguments:
        """From a command line, in the forms ``--name value``, ``--name=value`` and ``--name``."""
        values: dict[str, Any] = {}
        for at, flag in enumerate(flags):
            if not flag.startswith("--"):
                continue
            name, equals, value = flag[2:].partition("=")
            following = flags[at + 1] if at + 1 < len(flags) else "--"
            given = value if equals else True if following.startswith("--") else following
            values[name.replace("-", "_")] = given
        return cls(values, live=False)

    @classmethod
    def of_server(cls, url: str, key: str | None = None) -> SglangArguments:
        """From a running server, which may ask for its API key.

        Raises ServerError where it does not answer as SGLang does.
        """
        try:
            told = json.loads(fetch(f"{url.rstrip('/')}/server_info", key))
        except ValueError as error:
            raise ServerError(f"{url} answers /server_info with something else than JSON") from error
        if not isinstance(told, dict) or "page_size" not in told:
            raise ServerError(f"{url} answers /server_info, but not as SGLang does")
        return cls(told, live=True)

    def text(self, name: str, default: str = "") -> str:
        """The value of an argument as text; `default` where it is not set."""
        value = self.values.get(name)
        return default if value is None else str(value)

    def on(self, name: str) -> bool:
        """Whether a switch is set."""
        return self.values.get(name) in (True, "True", "true", "1")

    def number(self, name: str) -> float | None:
        """The value of a number; None where it is not set, or is none."""
        try:
            return float(self.values[name])
        except (KeyError, TypeError, ValueError):
            return None


def fetch(url: str, key: str | None = None) -> bytes:
    """The body of an answer, bounded in time and size. Raises ServerError where there is none."""
    if not url.startswith(("http://", "https://")):
        raise ServerError(f"{url!r} is not the address of a server: write http://host:port")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http only, as just checked
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - as above
            body: bytes = answer.read(_MOST_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ServerError(f"{url} does not answer: {reason}") from error
    return body
