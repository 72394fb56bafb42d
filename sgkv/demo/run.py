"""The demo from the model on disk to the table on the screen."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from sgkv.demo.results import Baseline, Run, as_json, as_table, complaints

ENGINES = ("sglang", "vllm", "both")


def run_demo(
    engine: str = "sglang",
    json_path: Path | None = None,
    *,
    folder: Path = Path(".cache"),
    baseline_prompts: int = 12,
    console: Console | None = None,
) -> int:
    """Play the scenario, print a table, write `json_path`; returns the exit code.

    `engine` is one of `ENGINES`; ``both`` lets each read what the other wrote and has a table of its own.
    The code is 1 when an output differs, when the restarted engine finds less than 90 % of its full
    pages, or when the engine does not run. The model stays in `folder` for the next time; what the
    store and the servers write is removed. `baseline_prompts` 0 leaves out the comparison of SGLang
    with itself without storage.
    """
    console = console or Console(log_path=False)
    if missing := _missing(engine):
        console.print(missing)
        return 1
    for needed in (folder, *([json_path.parent] if json_path else [])):
        needed.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="demo-", dir=folder.absolute()) as scratch:
            outcome = _play(engine, folder.absolute(), Path(scratch), baseline_prompts, console)
    except (RuntimeError, TimeoutError) as error:
        console.print(str(error), style="red", markup=False)
        return 1
    if json_path:
        json_path.write_text(json.dumps(outcome.content, indent=2) + "\n")
    console.print(outcome.table)
    for line in outcome.remarks:
        console.print(line)
    for complaint in outcome.complaints:
        console.print(complaint, style="bold red")
    return 1 if outcome.complaints else 0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one demo has to show."""

    content: dict[str, Any]
    """Of the ``--json`` file."""
    table: Table
    remarks: Sequence[str]
    complaints: Sequence[str]


def _missing(engine: str) -> str:
    """Which engine is not there, and how to get it; empty where all are."""
    if engine not in ENGINES:
        raise ValueError(f"no demo for engine {engine!r}; there is one for each of {', '.join(ENGINES)}")
    if engine != "vllm" and importlib.util.find_spec("sglang") is None:
        return "SGLang is not installed in this environment: `make setup` builds one that has it"
    if engine != "sglang":
        from sgkv.testing.vllm import vllm_python

        if not vllm_python().exists():
            return f"{vllm_python()} is not there: `make setup-vllm` builds an environment with vLLM"
    return ""


def _play(engine: str, folder: Path, scratch: Path, baseline_prompts: int, console: Console) -> _Outcome:
    if engine == "both":
        return _play_both(scratch, console)
    if engine == "vllm":
        runs, baseline = _measure_vllm(folder, scratch, console), None
    else:
        runs, baseline = _measure(folder, scratch, baseline_prompts, console)
    remarks = [baseline.summary()] if baseline else []
    content = as_json(engine, runs, baseline)
    return _Outcome(content, as_table(engine, runs), remarks, complaints(runs))


def _play_both(scratch: Path, console: Console) -> _Outcome:
    from sgkv.demo import matrix
    from sgkv.testing.vllm import VllmHost

    rows: list[matrix.Row] = []
    with VllmHost(scratch / "vllm.log") as host:
        for kind, dtype in matrix.MODELS:
            console.log(f"{kind} in {dtype}: SGLang and vLLM read each other's KV")
            place = scratch / f"{kind}-{dtype}"
            place.mkdir()
            rows += matrix.play(host, place, kind, dtype)
    content = as_json("both", [], None) | {"matrix": [row.as_json() for row in rows]}
    return _Outcome(content, matrix.as_table(rows), [], [line for row in rows for line in row.complaints])


def _measure_vllm(folder: Path, scratch: Path, console: Console) -> list[Run]:
    from sgkv.demo.engine import prepare_model
    from sgkv.demo.vllm import VllmScenario
    from sgkv.testing.vllm import VllmHost

    console.log("model: 30 M random weights in", str(folder))
    model = prepare_model(folder)
    console.log("starting vLLM with sgkv's disk tier below its host memory")
    with VllmHost(scratch / "vllm.log") as host:
        return VllmScenario(host, model, scratch / "kv", console.log).play()


def _measure(
    folder: Path, scratch: Path, baseline_prompts: int, console: Console
) -> tuple[list[Run], Baseline | None]:
    from sgkv.demo.baseline import measure_baseline
    from sgkv.demo.engine import prepare_model, sgkv_server
    from sgkv.demo.scenario import Scenario

    baseline = None
    console.log("model: 30 M random weights in", str(folder))
    model = prepare_model(folder)
    console.log("starting SGLang with sgkv, a cpu and a disk tier")
    with sgkv_server(model, scratch / "kv", scratch) as server:
        if baseline_prompts:
            console.log("starting SGLang alone, and asking both what neither has seen")
            baseline = measure_baseline(server, model, scratch, baseline_prompts)
        runs = Scenario(server, model, console.log).play()
    return runs, baseline
