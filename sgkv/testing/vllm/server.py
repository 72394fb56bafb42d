"""A real vLLM API server on loopback, with its engine and its worker in processes of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from sgkv.testing.process import ProcessTree
from sgkv.testing.server import HOST, free_port
from sgkv.testing.vllm.engine import vllm_python
from sgkv.vllm.cpu import cpu_environment

_NAME = "model"


class VllmServer:
    """``with VllmServer(...) as server`` runs it; its end is a SIGKILL to all of its processes."""

    def __init__(
        self, model: Path, transfer: Mapping[str, Any], *, log: Path, start_timeout: float = 400.0
    ) -> None:
        """`transfer` is a ``--kv-transfer-config``. Output is appended to `log`."""
        self.port = free_port()
        self._log = log
        self._start_timeout = start_timeout
        self._command = [
            str(vllm_python()), "-m", "vllm.entrypoints.openai.api_server", "--host", HOST,
            "--port", str(self.port), "--model", str(model), "--served-model-name", _NAME,
            "--dtype", "float32", "--max-model-len", "4096", "--block-size", "32", "--max-num-seqs", "8",
            "--max-num-batched-tokens", "1024", "--enforce-eager", "--enable-prompt-tokens-details",
            "--kv-transfer-config", json.dumps(transfer),
        ]  # fmt: skip
        self._tree: ProcessTree | None = None
        # vLLM says that it is ready a moment before it listens.
        patient = httpx.HTTPTransport(retries=6, trust_env=False)
        self._http = httpx.Client(base_url=f"http://{HOST}:{self.port}", timeout=120, transport=patient)

    def complete(self, prompt: Sequence[int], tokens: int) -> tuple[list[int], int]:
        """Greedy token ids for a prompt of token ids, and how many of its tokens came from a cache."""
        body = {
            "model": _NAME,
            "prompt": list(prompt),
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        answer = self._http.post("/v1/completions", json=body).raise_for_status().json()
        details = answer["usage"]["prompt_tokens_details"] or {}
        return answer["choices"][0]["token_ids"], details.get("cached_tokens") or 0

    def metrics(self) -> str:
        """The text of /metrics."""
        return self._http.get("/metrics").raise_for_status().text

    def kill(self) -> list[Path]:
        """SIGKILL to every process of the server. Returns vLLM's files in shared memory, now nobody's."""
        if self._tree is None:
            return []
        left = self._tree.shared_memory("vllm_offload_")
        self._tree.kill()
        return sorted(left)

    def __enter__(self) -> Self:
        self._tree = ProcessTree(self._command, {**os.environ, **cpu_environment()}, self._log)
        try:
            self._tree.wait_for_line("Application startup complete", self._start_timeout)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.close()
        for left in self.kill():
            left.unlink(missing_ok=True)
