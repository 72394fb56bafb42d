"""The demo from the model on disk to the table on the screen."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sgkv.demo.results import Baseline, Run, as_json, as_table, complaints


def run_demo(
    engine: str = "sglang",
    json_path: Path | None = None,
    *,
    folder: Path = Path(".cache"),
    baseline_prompts: int = 12,
    console: Console | None = None,
) -> int:
    """Play the scenario, print a table, write `json_path`; returns the exit code.

    The code is 1 when an output differs, when the restarted engine finds less than 90 % of its full
    pages, or when the engine does not run. The model stays in `folder` for the next time; what the
    store and the servers write is removed. `baseline_prompts` 0 leaves out the comparison.
    """
    console = console or Console(log_path=False)
    if engine != "sglang":
        raise ValueError(f"no demo for engine {engine!r}; there is one for sglang")
    if importlib.util.find_spec("sglang") is None:
        console.print("SGLang is not installed in this environment: `make setup` builds one that has it")
        return 1
    for needed in (folder, *([json_path.parent] if json_path else [])):
        needed.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="demo-", dir=folder.absolute()) as scratch:
            runs, baseline = _measure(folder.absolute(), Path(scratch), baseline_prompts, console)
    except (RuntimeError, TimeoutError) as error:
        console.print(str(error), style="red", markup=False)
        return 1
    if json_path:
        json_path.write_text(json.dumps(as_json(engine, runs, baseline), indent=2) + "\n")
    return _report(engine, runs, baseline, console)


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


def _report(engine: str, runs: Sequence[Run], baseline: Baseline | None, console: Console) -> int:
    console.print(as_table(engine, runs))
    if baseline:
        console.print(baseline.summary())
    for complaint in (found := complaints(runs)):
        console.print(complaint, style="bold red")
    return 1 if found else 0
