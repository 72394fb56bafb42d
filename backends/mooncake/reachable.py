"""Whether it is worth setting the library up, which holds Python's global lock until it ends.

Seen: 4.4 s where there is no master, in which no thread of the engine runs. So the master is asked
first, by means that let others work.
"""

from __future__ import annotations

import socket

from sgkv.backends.mooncake.admin import Admin
from sgkv.backends.mooncake.options import MooncakeOptions

_SECONDS = 1.0


def why_not_reachable(options: MooncakeOptions) -> str | None:
    """Why connecting would fail or hang; None where it should work."""
    address = options.standalone or options.master
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS).close()
    except OSError as error:
        return f"{address}: {error}"
    return None if options.standalone else _why_not_ready(options)


def _why_not_ready(options: MooncakeOptions) -> str | None:
    try:
        ready = Admin(options.admin_url).ready(_SECONDS)
    except TimeoutError:
        return f"{options.master} hangs: {options.admin_url} does not answer"
    except (OSError, ValueError) as error:
        if isinstance(getattr(error, "reason", None), TimeoutError):
            return f"{options.master} hangs: {options.admin_url} does not answer"
        return None  # another port, or closed to us: no reason not to try
    return None if ready else f"{options.master} is not ready to serve"
