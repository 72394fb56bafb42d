"""Two servers with the linker that restore the same prompt, one layer by layer, one all at once."""

from __future__ import annotations

from pathlib import Path

from sgkv.demo.engine import PAGE_SIZE, Model, prepare_model, prompt
from sgkv.sglang.launch import linker_arguments
from sgkv.testing.pairs import Pair
from sgkv.testing.restoring import restored_in_turns
from sgkv.testing.server import SglangServer

_PROMPT_TOKENS = 4000


def restored_pairs(pairs: int, folder: Path) -> list[Pair]:
    """So many restorations of one prompt from the cpu tier, on the demo's model; files go to `folder`.

    Raises RuntimeError where a server fails, or computes what it should restore.
    """
    model = prepare_model(folder)
    ids = prompt(1, _PROMPT_TOKENS)
    whole, layered = (_server(model, folder, layer_wise=layer_wise) for layer_wise in (False, True))
    with whole, layered:
        return restored_in_turns(whole, layered, ids, len(ids) // PAGE_SIZE * PAGE_SIZE, pairs)


def _server(model: Model, folder: Path, *, layer_wise: bool) -> SglangServer:
    config = {"tiers": [{"type": "cpu", "capacity": "1GiB"}], "linker": {"layer_wise": layer_wise}}
    return SglangServer(
        model.path,
        page_size=PAGE_SIZE,
        log_path=folder / f"linker-{'layered' if layer_wise else 'whole'}.log",
        extra_args=linker_arguments(config),
    )
