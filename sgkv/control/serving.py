"""The controller as a process: uvicorn around its API."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import uvicorn

from sgkv.control.access import Tokens
from sgkv.control.api import make_app
from sgkv.control.desk import Desk
from sgkv.control.gate import GateLimits, audit
from sgkv.control.registry import Registry

_START_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a controller listens; beyond loopback only with a certificate, for tokens cross the network."""

    host: str = "127.0.0.1"
    port: int = 7600
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        """Raises ValueError, saying what to change."""
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a certificate and its key go together: give both")
        if self.certificate is None and not ipaddress.ip_address(self.host).is_loopback:
            raise ValueError(
                f"{self.host} is not loopback, and tokens would cross the network in the clear: give a "
                "certificate and its key, or put a proxy that ends TLS before 127.0.0.1"
            )


def make_server(
    tokens: Tokens, listening: Listening, limits: GateLimits | None = None, desk: Desk | None = None
) -> uvicorn.Server:
    """Not started. Its log is that of the process; the audit log is `sgkv.control.audit`."""
    app = make_app(desk or Desk(Registry()), tokens, limits)
    config = uvicorn.Config(
        app,
        host=listening.host,
        port=listening.port,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        limit_concurrency=1024,
        ws="none",
    )
    return uvicorn.Server(config)


def audit_into(path: Path) -> None:
    """Append the audit log to a file."""
    audit.addHandler(logging.FileHandler(path))
    audit.setLevel(logging.INFO)
    audit.propagate = False


@contextmanager
def in_background(server: uvicorn.Server) -> Iterator[str]:
    """Its URL, once it listens; it ends with the block. For tests and for embedding."""
    sock = server.config.bind_socket()
    sock.listen(server.config.backlog)  # who comes before it runs waits, and is not turned away
    thread = Thread(target=server.run, kwargs={"sockets": [sock]}, name="sgkv-control", daemon=True)
    thread.start()
    try:
        host, port = sock.getsockname()[:2]
        yield f"{'https' if server.config.is_ssl else 'http'}://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join(_START_SECONDS)
        sock.close()
