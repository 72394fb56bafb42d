"""moto's S3 as a server in this process, with directory buckets and mischief over it."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from sgkv.backends.s3.client import open_client, open_session
from sgkv.backends.s3.options import S3Options
from sgkv.testing.s3 import ACCESS_KEY, BUCKET, DIRECTORY_BUCKET, REGION, SECRET_KEY
from sgkv.testing.s3.express import Express
from sgkv.testing.s3.mischief import Mischief


class _Handler(WSGIRequestHandler):
    """Keeps connections, and keeps quiet."""

    protocol_version = "HTTP/1.1"
    server: Any

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The Date header, by the server's own clock."""
        now = time.time() if timestamp is None else timestamp
        return super().date_time_string(now + self.server.app.express.skew)

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's name
        """Tests read counters, not logs."""


class S3Double:
    """``with S3Double() as server`` has both test buckets. Buckets live as long as the process."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """With `tls` it speaks nothing else."""
        self._secure = tls is not None
        self.express = Express(create_backend_app("s3"))
        self.mischief = Mischief(self.express)
        self._server = make_server(
            "127.0.0.1", 0, self, threaded=True, request_handler=_Handler, ssl_context=tls
        )
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3-double", daemon=True)

    @property
    def endpoint(self) -> str:
        return f"{'https' if self._secure else 'http'}://127.0.0.1:{self._server.port}"

    def options(self, bucket: str = BUCKET, **options: Any) -> S3Options:
        """How to reach a bucket of this server."""
        return options_for(self.endpoint, bucket, **options)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return self.mischief(environ, start_response)

    def __enter__(self) -> Self:
        self._thread.start()
        make_buckets(self.endpoint, BUCKET, DIRECTORY_BUCKET, verify=not self._secure)
        self.express.counts.clear()
        self.mischief.requests.clear()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def options_for(endpoint: str, bucket: str = BUCKET, **options: Any) -> S3Options:
    """Options for one of the servers of this package."""
    known = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "region": REGION}
    return S3Options(bucket, endpoint=endpoint, **{**known, **options})


def make_buckets(endpoint: str, *buckets: str, verify: bool = True) -> None:
    """Create buckets, which need not be new."""
    options = options_for(endpoint, verify=verify)
    client = open_client(open_session(options), options, attempts=3, connections=1)
    present = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
    for bucket in set(buckets) - present:
        client.create_bucket(Bucket=bucket)
    client.close()
