"""`python -m sgkv.testing.s3`: the double in a process of its own, until its input ends."""

from __future__ import annotations

import sys

from sgkv.testing.s3.double import S3Double

with S3Double() as server:
    print(server.endpoint, flush=True)  # noqa: T201 - for whoever started this
    sys.stdin.read()
