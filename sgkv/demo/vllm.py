"""The demo's prompt on vLLM: unseen, from host memory, after a crash, and after a reset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sgkv.demo.engine import FULL_PAGE_TOKENS, OUTPUT_TOKENS, Model, prompt
from sgkv.demo.results import Run, Traffic
from sgkv.testing.client import Generation
from sgkv.testing.vllm import Answer, VllmEngine, VllmHost
from sgkv.vllm.launch import transfer_config

LOGPROB_BAR = 5e-5
"""In float32: vLLM's kernels sum a prefix that was cached in another order than one that is computed."""

_SEED = 0
_HOST_BYTES = 256 << 20
_CACHED = "vllm:prompt_tokens_cached_by_source "
_MOVED = {"read": "vllm:sgkv_read_bytes ", "written": "vllm:sgkv_written_bytes "}


class VllmScenario:
    """Four runs on one model and one folder, over two engines of `host`."""

    def __init__(self, host: VllmHost, model: Model, disk: Path, say: Callable[[str], None]) -> None:
        self._host = host
        self._model = model
        self._say = say
        settings = {"tiers": [{"type": "disk", "path": str(disk), "capacity": "2GiB"}]}
        self._transfer = transfer_config(settings, _HOST_BYTES, chunk_tokens=64, cpu_engine=True)
        self._cold: Answer | None = None

    def play(self) -> list[Run]:
        """The runs in order, named as in the demo's JSON."""
        self._say("cold: a prompt that nobody has seen")
        engine = self._start()
        try:
            runs = [self._ask(engine, "cold")]
            self._say("warm: the same, after vLLM has dropped its device cache")
            engine.reset()
            runs.append(self._ask(engine, "warm"))
        finally:
            self._say("restarted: the same, after SIGKILL to the engine and a new start")
            for left in engine.kill():  # vLLM's host memory outlives it
                left.unlink()
        with self._start() as engine:
            runs.append(self._ask(engine, "restarted"))
            self._say("emptied: the same, after a reset of every cache")
            engine.reset(connector=True)
            runs.append(self._ask(engine, "emptied"))
        return runs

    def _start(self) -> VllmEngine:
        engine = self._host.start(self._model.path, self._transfer)
        engine.one(prompt(-1, 200), 4)  # pays for what a process does once
        engine.settle()
        return engine

    def _ask(self, engine: VllmEngine, name: str) -> Run:
        before = engine.metrics()
        answer = engine.one(prompt(_SEED), OUTPUT_TOKENS)
        engine.settle()
        moved = _difference(engine.metrics(), before)
        self._cold = self._cold or answer
        by_tier = {
            name.removeprefix(_CACHED): int(n) for name, n in moved.items() if name.startswith(_CACHED)
        }
        told = Generation(
            output_ids=tuple(answer.output_ids),
            logprobs=tuple(answer.logprobs),
            text="",
            prompt_tokens=len(prompt(_SEED)),
            cached_tokens=answer.cached_tokens,
            cached_by_tier=by_tier,
            ttft_s=answer.ttft_s,
            e2e_s=answer.ttft_s,
        )
        return Run(name, told, FULL_PAGE_TOKENS, _equal(answer, self._cold), _traffic(moved))


def _equal(answer: Answer, cold: Answer) -> bool:
    """Equal tokens, and log-probabilities within what float32 leaves open."""
    pairs: Any = zip(answer.logprobs, cold.logprobs, strict=True)
    return answer.output_ids == cold.output_ids and all(
        abs(one - other) <= LOGPROB_BAR for one, other in pairs
    )


def _difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0) for name, value in after.items()}


def _traffic(moved: Mapping[str, float]) -> Traffic:
    traffic: Traffic = Counter()
    for verb, metric in _MOVED.items():
        for name, nbytes in moved.items():
            if name.startswith(metric) and nbytes:
                traffic[verb, name.removeprefix(metric)] = int(nbytes)
    return traffic
