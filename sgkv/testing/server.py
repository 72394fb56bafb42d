"""A real SGLang server on loopback, started and stopped by tests, demo and benchmarks."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from sgkv.sglang.cpu import cpu_environment
from sgkv.testing.client import ADMIN_KEY, SglangClient
from sgkv.testing.process import ProcessTree

HOST = "127.0.0.1"
ENTRIES: Mapping[str, Sequence[str]] = {
    "launch_server": ("-m", "sglang.launch_server"),
    "serve": (str(Path(sys.executable).with_name("sglang")), "serve"),
}


class SglangServer(SglangClient):
    """One server process tree on the CPU engine; ``with SglangServer(...) as server`` runs it.

    After `kill` or `stop` the same options can be started again with `start`: that is what a crash
    and a restart of an engine look like to a store. Not thread-safe but for what `SglangClient` is.
    """

    def __init__(
        self,
        model: Path,
        *,
        log_path: Path,
        page_size: int = 64,
        dtype: str = "float32",
        tp: int = 1,
        storage: str | None = None,
        storage_config: Mapping[str, object] | None = None,
        layout: str | None = "page_first",
        io_backend: str | None = None,
        prefetch_policy: str = "wait_complete",
        metrics: bool = False,
        entry: str = "launch_server",
        extra_args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        start_timeout: float = 600.0,
        request_timeout: float = 300.0,
    ) -> None:
        """`storage` is a value of ``--hicache-storage-backend`` and switches HiCache on.

        `storage_config` becomes the backend's extra config. `layout` and `io_backend` None leave
        SGLang's defaults. `extra_args` come last, so they override. Output is appended to `log_path`.
        """
        self.model, self.log_path = model, log_path
        self.port = free_port()
        super().__init__(f"http://{HOST}:{self.port}", request_timeout)
        self._start_timeout = start_timeout
        self._environment = {**os.environ, **cpu_environment(tp), **(env or {})}
        options: dict[str, object] = {
            **_FIXED,
            "--model-path": model,
            "--port": self.port,
            "--page-size": page_size,
            "--dtype": dtype,
            "--tp-size": tp,
        }
        if storage:
            options |= _hicache(storage, storage_config, prefetch_policy, layout, io_backend)
        if metrics:
            options["--enable-metrics"] = None
        self.command = [sys.executable, *ENTRIES[entry], *_arguments(options), *extra_args]
        self._tree: ProcessTree | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def start(self) -> Self:
        """Start and wait until it answers; raises `RuntimeError` with its last lines when it dies."""
        if self.alive:
            raise RuntimeError("the server is running already")
        self._scratch = tempfile.TemporaryDirectory(prefix="sgkv-server-")
        self._tree = ProcessTree(
            self.command, {**self._environment, "TMPDIR": self._scratch.name}, self.log_path
        )
        try:
            self._tree.wait_for_line(f"Uvicorn running on .*:{self.port}", self._start_timeout)
            self.admin("GET", "/health")
        except BaseException:
            self.kill()
            raise
        return self

    @property
    def alive(self) -> bool:
        """Whether any process of the server runs."""
        return self._tree is not None and self._tree.alive

    @property
    def tree(self) -> ProcessTree:
        """The processes and their output; of the last start."""
        if self._tree is None:
            raise RuntimeError("the server has not been started")
        return self._tree

    def stop(self, timeout: float = 30.0) -> None:
        """SIGTERM, and SIGKILL to all after `timeout` seconds. Nothing is left when it returns."""
        self._end(lambda tree: tree.stop(timeout))

    def kill(self) -> None:
        """SIGKILL to every process of the server, as a crash or an OOM kill would."""
        self._end(ProcessTree.kill)

    def _end(self, how: Callable[[ProcessTree], None]) -> None:
        """End the processes and remove the files that SGLang leaves behind when it is killed."""
        if self._tree:
            shared = self._tree.shared_memory("sglang_loads_")
            how(self._tree)
            for path in shared:
                path.unlink(missing_ok=True)
        if self._scratch:
            self._scratch.cleanup()

    def log_text(self) -> str:
        """Everything all starts of this server have printed."""
        return self.log_path.read_text(errors="replace")

    def close(self) -> None:
        """`stop`, and close the client."""
        self.stop()
        super().close()

    def __enter__(self) -> Self:
        return self.start()


_FIXED: Mapping[str, object] = {
    "--device": "cpu",
    "--attention-backend": "torch_native",
    "--sampling-backend": "pytorch",
    "--grammar-backend": "none",
    "--host": HOST,
    "--admin-api-key": ADMIN_KEY,
    "--random-seed": 1,
    "--context-length": 8192,
    "--max-total-tokens": 16384,
    "--max-running-requests": 4,
    "--chunked-prefill-size": 2048,
    "--disable-overlap-schedule": None,
    "--skip-server-warmup": None,
    # An idle scheduler spins on a whole core otherwise, and others here need the cores.
    "--sleep-on-idle": None,
    "--enable-cache-report": None,
}


def _hicache(
    storage: str,
    config: Mapping[str, object] | None,
    prefetch_policy: str,
    layout: str | None,
    io_backend: str | None,
) -> dict[str, object]:
    options: dict[str, object] = {
        "--enable-hierarchical-cache": None,
        "--hicache-storage-backend": storage,
        "--hicache-storage-prefetch-policy": prefetch_policy,
    }
    if config is not None:
        options["--hicache-storage-backend-extra-config"] = json.dumps(config)
    if layout:
        options["--hicache-mem-layout"] = layout
    if io_backend:
        options["--hicache-io-backend"] = io_backend
    return options


def _arguments(options: Mapping[str, object]) -> Iterator[str]:
    """Flags with a value of None stand alone."""
    for flag, value in options.items():
        yield flag
        if value is not None:
            yield str(value)


def free_port() -> int:
    """A loopback port nobody listens on, outside the ranges from which others take ports themselves.

    The kernel takes them from 32768 on, and a starting SGLang from 22000 on
    (`get_free_port_below_ephemeral`), which could be in the time until this one is bound.
    """
    for port in random.sample(range(18_000, 22_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise OSError("no free port between 18000 and 22000")
