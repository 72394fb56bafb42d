"""How a conversation with a server ends without an answer."""

from __future__ import annotations


class Unreachable(Exception):  # noqa: N818 - what the server is, not what we did wrong
    """No whole answer came: refused, reset, cut short, not of the protocol. Another attempt may succeed."""


class Silent(Unreachable):
    """No answer came in time."""


class Abandoned(Exception):  # noqa: N818 - not an error of anyone's
    """The caller's deadline is over."""
