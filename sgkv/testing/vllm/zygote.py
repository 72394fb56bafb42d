"""Runs in vLLM's environment: imports it once, and forks an engine for each connection to a socket.

``python -m sgkv.testing.vllm.zygote SOCKET``. A restart of an engine then costs seconds instead of an
import. The connection speaks JSON lines: first the arguments of `vllm.LLM`, then commands, each answered
by one line. Its end is the engine's end, in order; a kill is the client's to send.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import IO, Any


def main(path: str) -> None:
    """Listen on the Unix socket `path` and fork for each connection, until killed."""
    from vllm import LLM  # noqa: F401 - what every engine needs, imported before the forks
    from vllm.model_executor.models import gemma3, llama, qwen3  # noqa: F401
    from vllm.v1.core.sched import scheduler  # noqa: F401
    from vllm.v1.engine import llm_engine  # noqa: F401

    import sgkv.vllm.connector
    import sgkv.vllm.offloading
    import sgkv.vllm.tier  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the engines
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("zygote is ready", flush=True)  # noqa: T201 - what the owner waits for
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _engine(connection)
            connection.close()


def _engine(connection: socket.socket) -> None:
    """Serve one connection and leave, whatever happens."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        with connection.makefile("rw") as stream:
            serve(stream)
        code = 0
    except BaseException:  # noqa: BLE001 - the log is all that is left of it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve(stream: IO[str]) -> None:
    """Start the engine that the first line asks for and obey until the stream ends."""
    from vllm import LLM

    _say(stream, {"pid": os.getpid()})
    line = stream.readline()
    if not line:
        return
    asked = json.loads(line)
    os.environ.update(asked["env"])
    llm = LLM(**asked["llm"])
    try:
        _say(stream, {"ready": True})
        for line in stream:
            command = json.loads(line)
            _say(stream, _COMMANDS[command.pop("do")](llm, **command))
    finally:
        llm.llm_engine.engine_core.shutdown()


def _say(stream: IO[str], answer: Mapping[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


def _generate(
    llm: Any,
    prompts: list[list[int]],
    tokens: int,
    top: int,
    salt: str | None,
    transfer: dict[str, Any] | None,
) -> dict[str, Any]:
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, logprobs=max(1, top),
        extra_args={"kv_transfer_params": transfer} if transfer else None,
    )  # fmt: skip
    salted = {"cache_salt": salt} if salt else {}
    asked = [{"prompt_token_ids": prompt, **salted} for prompt in prompts]
    return {"answers": [_answer(done) for done in llm.generate(asked, sampling, use_tqdm=False)]}


def _answer(done: Any) -> dict[str, Any]:
    output = done.outputs[0]
    steps = output.logprobs or []
    return {
        "output_ids": list(output.token_ids),
        "logprobs": [step[token].logprob for step, token in zip(steps, output.token_ids, strict=True)],
        "gaps": [_gap([each.logprob for each in step.values()]) for step in steps],
        "cached_tokens": done.num_cached_tokens,
        "finish_reason": output.finish_reason,
        "ttft_s": done.metrics.first_token_latency,
        "transfer": done.kv_transfer_params,
    }


def _gap(logprobs: list[float]) -> float:
    """Between the best and the second best token, in nat."""
    best = sorted(logprobs, reverse=True)
    return best[0] - best[1] if len(best) > 1 else 0.0


def _metrics(llm: Any) -> dict[str, Any]:
    """Sum of each counter and gauge by name and by what its labels say beyond model and engine."""
    found: dict[str, float] = {}
    for metric in llm.get_metrics():
        value = getattr(metric, "value", None)
        labels = {name: text for name, text in metric.labels.items() if name not in ("model_name", "engine")}
        if value is not None:
            name = metric.name + "".join(f" {text}" for text in labels.values())
            found[name] = found.get(name, 0) + value
    return {"metrics": found}


def _idle(llm: Any) -> dict[str, Any]:
    """Step until nothing is pending, and wait until what was to be stored has reached its tier."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group

    from sgkv.testing.waiting import wait_until

    core = llm.llm_engine.engine_core.engine_core

    def settled() -> bool:
        core.step_fn()
        return not core.scheduler.has_requests() and not core.scheduler.connector.has_pending_push_work()

    wait_until(settled, "transfers that have ended", timeout=60)
    flush = getattr(get_kv_transfer_group(), "flush", None) if has_kv_transfer_group() else None
    if flush is not None and not flush(60.0):
        raise TimeoutError("what was to be stored has not reached its tier within 60 s")
    return {}


def _reset(llm: Any, connector: bool) -> dict[str, Any]:
    return {"reset": llm.llm_engine.reset_prefix_cache(reset_connector=connector)}


_COMMANDS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "generate": _generate,
    "metrics": _metrics,
    "idle": _idle,
    "reset": _reset,
}

if __name__ == "__main__":
    main(sys.argv[1])
