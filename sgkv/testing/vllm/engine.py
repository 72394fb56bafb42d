"""The owner's side of `zygote`: engines as objects."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import sgkv
from sgkv.testing.process import ProcessTree
from sgkv.vllm.cpu import cpu_environment

PYTHON = "SGKV_VLLM_PYTHON"
"""Environment variable: the interpreter of an environment that has vLLM."""


def vllm_python() -> Path:
    """The interpreter that has vLLM: ``SGKV_VLLM_PYTHON``, or that of `make setup-vllm`."""
    named = os.environ.get(PYTHON)
    return Path(named) if named else Path(sgkv.__file__).parents[1] / ".venv-vllm" / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answered prompt."""

    output_ids: list[int]
    logprobs: list[float]
    gaps: list[float]
    """Between the best and the second best token at each position, in nat."""
    cached_tokens: int
    finish_reason: str
    ttft_s: float
    """From the request's arrival to its first token, as vLLM measures it."""
    transfer: dict[str, Any] | None
    """``kv_transfer_params`` of the answer, for the engine that goes on with it."""


class VllmEngine:
    """One engine in a process of its own; its context ends it in order. One thread."""

    def __init__(self, path: Path, log: Path, llm: Mapping[str, Any], env: Mapping[str, str]) -> None:
        """`llm` are the arguments of `vllm.LLM`. Raises RuntimeError where it does not start."""
        self._log = log
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(120.0)
        self._socket.connect(str(path))
        self._stream = self._socket.makefile("rw")
        self.pid: int = json.loads(self._stream.readline())["pid"]
        self._call({"llm": llm, "env": env})

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        tokens: int = 16,
        *,
        top: int = 2,
        salt: str | None = None,
        transfer: Mapping[str, Any] | None = None,
    ) -> list[Answer]:
        """Greedy answers of `tokens` tokens each, with the log-probabilities of the `top` best.

        `transfer` are ``kv_transfer_params``, as a router passes them on.
        """
        asked = {
            "do": "generate",
            "prompts": list(map(list, prompts)),
            "tokens": tokens,
            "top": top,
            "salt": salt,
            "transfer": transfer,
        }
        return [Answer(**answer) for answer in self._call(asked)["answers"]]

    def one(self, prompt: Sequence[int], tokens: int = 16, **options: Any) -> Answer:
        return self.generate([prompt], tokens, **options)[0]

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by name, followed by the values of their own labels."""
        found: dict[str, float] = self._call({"do": "metrics"})["metrics"]
        return found

    def settle(self) -> None:
        """Wait until what was offloaded has reached its tier."""
        self._call({"do": "idle"})

    def reset(self, *, connector: bool = False) -> bool:
        """Drop vLLM's own cache, with `connector` that of its host memory and of the tiers too."""
        return bool(self._call({"do": "reset", "connector": connector})["reset"])

    def kill(self) -> list[Path]:
        """SIGKILL, as a crash or an OOM kill would. Returns vLLM's files in shared memory, now nobody's."""
        maps = Path(f"/proc/{self.pid}/maps").read_text()
        os.kill(self.pid, signal.SIGKILL)
        self._stream.read()  # until the connection has ended with its process
        self.close()
        return sorted(set(map(Path, re.findall(r"/\S+/vllm_offload_\S+", maps))))

    def close(self) -> None:
        """End the engine in order and wait for it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._stream.read()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _call(self, command: Mapping[str, Any]) -> Any:
        self._stream.write(json.dumps(command) + "\n")
        self._stream.flush()
        line = self._stream.readline()
        if not line:
            raise RuntimeError(f"the vLLM engine has ended:\n{self._log.read_text(errors='replace')[-6000:]}")
        return json.loads(line)


class VllmHost:
    """Starts engines quickly: vLLM is imported once, in the first of its processes."""

    def __init__(self, log: Path) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="sgkv-vllm-")
        self._socket = Path(self._scratch.name) / "socket"
        self.log = log
        environment = {**os.environ, **cpu_environment(), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        environment["VLLM_LOGGING_LEVEL"] = "INFO"
        command = [str(vllm_python()), "-m", "sgkv.testing.vllm.zygote", str(self._socket)]
        self._tree = ProcessTree(command, environment, log)
        try:
            self._tree.wait_for_line("zygote is ready", 300)
        except BaseException:
            self.close()
            raise

    def start(
        self,
        model: Path,
        transfer: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        **llm: Any,
    ) -> VllmEngine:
        """An engine that serves `model`, by default in float32 with blocks of 32 tokens; `llm` overrides.

        `transfer` is a ``--kv-transfer-config``.
        """
        arguments = {**_FIXED, "model": str(model), **llm}
        if transfer is not None:
            arguments["kv_transfer_config"] = transfer
        return VllmEngine(self._socket, self.log, arguments, env or {})

    def close(self) -> None:
        self._tree.kill()
        self._scratch.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_FIXED: Mapping[str, Any] = {
    "dtype": "float32",
    "max_model_len": 4096,
    "enforce_eager": True,
    "block_size": 32,
    "skip_tokenizer_init": True,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 1024,
    "disable_log_stats": False,
    "seed": 0,
    "enable_prefix_caching": True,
    "max_logprobs": 20,
}
