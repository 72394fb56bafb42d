"""A network of one's own with nothing in it but the loopback interface.

For what listens on every interface whatever it is told, as Mooncake's clients do:

    unshare --net python -m sgkv.testing.loopback COMMAND...
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

_SIOCSIFFLAGS = 0x8914
_UP_AND_RUNNING = 0x41
"""`IFF_UP | IFF_RUNNING`; this and the request's form are from netdevice(7)."""
_WAYS = (
    ("unshare", "--net"),
    ("unshare", "--map-root-user", "--net"),
    ("sudo", "-n", "--preserve-env", "unshare", "--net"),
)


def alone() -> bool:
    """Whether the loopback interface is all the network that this process has."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def in_loopback(command: Sequence[str]) -> list[str]:
    """`command`, to be started in a network of its own. Raises PermissionError where that may not be."""
    if alone():
        return list(command)
    way = _way()
    if way is None:
        raise PermissionError(
            "this user may not make a network namespace (unshare --net): be root, allow user namespaces, "
            "or in a container add the capability SYS_ADMIN"
        )
    return [*way, sys.executable, "-m", __spec__.name, *command]


@cache
def _way() -> tuple[str, ...] | None:
    for way in _WAYS:
        try:
            done = subprocess.run([*way, "true"], capture_output=True, check=False, timeout=10)  # noqa: S603
        except FileNotFoundError:
            continue
        if not done.returncode:
            return way
    return None


def bring_up() -> None:
    """Switch the loopback interface of this network on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))


if __name__ == "__main__":
    bring_up()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the caller's own command
