"""One cache for two engines: what one computed is read by the other, and the answers compared.

Both engines run on a CPU over one disk tier. A reader's own answer, computed under another cache salt
and so without anything stored, is what its answer from the other's KV is compared with.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from sgkv.demo.replies import Comparison, ask_sglang, ask_vllm, compare
from sgkv.testing.models import write_model
from sgkv.testing.server import SglangServer
from sgkv.testing.vllm import VllmHost
from sgkv.testing.waiting import wait_until
from sgkv.vllm.launch import transfer_config

PAGE_TOKENS = 64
PROMPT_TOKENS = 530
"""Eight full pages and a rest that every engine computes itself."""
FULL_PAGE_TOKENS = PROMPT_TOKENS // PAGE_TOKENS * PAGE_TOKENS
LOGPROB_BAR = 5e-5
"""In float32; without any sharing the engines differ by 2e-5 on the same prompt."""
MODELS = (("llama", "float32"), ("qwen3", "float32"), ("llama", "bfloat16"), ("qwen3", "bfloat16"))

_PATIENT = {"contains": 20, "get": 30, "put": 30}
_HOST_BYTES = 64 << 20
_BLOBS_A_PROMPT = 2
"""Full chunks of 256 tokens."""


@dataclass(frozen=True, slots=True)
class Row:
    """One direction for one model."""

    model: str
    dtype: str
    writer: str
    reader: str
    found: Comparison

    @property
    def complaints(self) -> list[str]:
        """What is wrong with it; empty when all is well."""
        where = f"{self.model} {self.dtype}, {self.writer} to {self.reader}"
        found, wrong = self.found, []
        if found.cached_tokens < FULL_PAGE_TOKENS:
            wrong.append(f"{where}: {found.cached_tokens} of {FULL_PAGE_TOKENS} full-page tokens were found")
        if found.changed_past_margin:
            wrong.append(f"{where}: {found.changed_past_margin} tokens changed past the margin")
        same = found.equal_outputs == found.prompts and found.largest_difference <= LOGPROB_BAR
        if self.dtype == "float32" and not same:
            wrong.append(f"{where}: answers differ in float32")
        return wrong

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "dtype": self.dtype,
            "writer": self.writer,
            "reader": self.reader,
            "prompts": self.found.prompts,
            "cached_tokens": self.found.cached_tokens,
            "full_page_tokens": FULL_PAGE_TOKENS,
            "equal_outputs": self.found.equal_outputs,
            "largest_logprob_difference": self.found.largest_difference,
            "changed_past_margin": self.found.changed_past_margin,
            "ok": not self.complaints,
        }


def configuration(folder: Path, kind: str, dtype: str, head_group: int | None = None) -> dict[str, Any]:
    """Settings of sgkv for either engine, over a disk tier in `folder`."""
    numerics = {"numerics": "compatible", "numerics_class": f"{kind}-family {dtype} unquantized"}
    return {
        "model": {**numerics, "head_group": head_group},
        "tiers": [{"type": "disk", "path": str(folder), "capacity": "1GiB", "deadlines": _PATIENT}],
        "engine": {"exists_deadline": 20, "get_deadline": 30, "set_deadline": 30},
    }


def transfer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The ``--kv-transfer-config`` for these settings on a CPU."""
    return transfer_config(settings, _HOST_BYTES, chunk_tokens=PAGE_TOKENS, cpu_engine=True)


def prompts(seed: int, count: int) -> list[list[int]]:
    """Prompts that share no page with each other, nor with those of another seed."""
    source = random.Random(seed)  # noqa: S311 - reproducible prompts
    return [[source.randrange(2, 258) for _ in range(PROMPT_TOKENS)] for _ in range(count)]


def prepare(folder: Path, kind: str, dtype: str) -> Path:
    """Write the model that both engines serve."""
    return write_model(folder / "model", kind, dtype=dtype, hidden=256, head_dim=64)


def play(host: VllmHost, folder: Path, kind: str, dtype: str, count: int = 3, *, ranks: int = 1) -> list[Row]:
    """Both directions for one model, `count` prompts each; starts and ends a server and an engine.

    With several `ranks` of SGLang the engines meet in cells of one kv head.
    """
    settings = configuration(folder / "kv", kind, dtype, head_group=1 if ranks > 1 else None)
    model = prepare(folder, kind, dtype)
    with ExitStack() as stack:
        log = folder / "sglang.log"
        server = stack.enter_context(
            SglangServer(model, log_path=log, dtype=dtype, tp=ranks, storage="sgkv", storage_config=settings)
        )
        engine = stack.enter_context(host.start(model, transfer(settings), dtype=dtype))
        asked = prompts(1, count)
        for prompt in asked:
            server.generate(prompt, 1)
        stored = _BLOBS_A_PROMPT * count * ranks
        wait_until(lambda: _blobs(folder) >= stored, "SGLang's KV on disk", timeout=60)
        to_vllm = compare(asked, ask_vllm(engine))
        asked = prompts(2, count)
        engine.generate(asked, 1)
        engine.settle()
        to_sglang = compare(asked, ask_sglang(server))
    return [
        Row(kind, dtype, "sglang", "vllm", to_vllm),
        Row(kind, dtype, "vllm", "sglang", to_sglang),
    ]


def as_table(rows: Sequence[Row]) -> Table:
    """Fits 80 columns."""
    table = Table(title="KV of one engine read by the other", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("model", "dtype", "written by", "read by"):
        table.add_column(heading)
    for heading in ("cached\ntokens", "equal\noutputs", "largest log-\nprob difference"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.model, row.dtype, row.writer, row.reader, f"{row.found.cached_tokens}/{FULL_PAGE_TOKENS}",
            f"{row.found.equal_outputs}/{row.found.prompts}", f"{row.found.largest_difference:.1e}",
        )  # fmt: skip
    return table


def _blobs(folder: Path) -> int:
    return sum(path.is_file() for path in (folder / "kv" / "blobs").rglob("*"))
