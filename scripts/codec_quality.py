"""What codecs that lose something do to a model's answers.

    python -m scripts.codec_quality [--steps 1000] [--json FILE] [--plot FILE.svg]

Trains a small model (four layers of Llama's kind over bytes, seeded) on the text of Python's standard
library, for no trained weights can be had from a package, and has it go on with texts that it has not seen:
over the KV of their first part as a pool in bfloat16 holds it, and over what a tier would give back of that.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch.nn import functional

from sgkv.codecs.quantizing import Quantize
from sgkv.testing.small_lm import KV, SmallLM, agreement, library_text, samples, train

EIGHT_BITS = ("int8", "fp8")
CODECS = [(one, one) for one in ("int8", "fp8", "int4", "nf4")] + [("int8", "int4"), ("int8", "nf4")]
BAR = 0.995
"""Top-1 agreement that the 8-bit formats are to reach."""
_PREFIX, _REST, _TEXTS = 160, 96, 256
"""Tokens, and texts; together no longer than what the model was trained on."""


@dataclass(frozen=True, slots=True)
class Quality:
    """Of one codec."""

    keys: str
    values: str
    stored_share: float
    relative_error: float
    top1_agreement: float
    kl_nats: float
    perplexity: float
    perplexity_plain: float


def quality(model: SmallLM, texts: torch.Tensor, keys: str, values: str) -> Quality:
    """`texts` are ids ``[texts, tokens]``; the rest of each is predicted over the KV of its beginning."""
    rest = texts[:, _PREFIX:]
    with torch.no_grad():
        _, kv = model(texts[:, :_PREFIX])
        plain = [(k.bfloat16().float(), v.bfloat16().float()) for k, v in kv]
        coded, share, error = _through(plain, keys, values)
        expected, _ = model(rest, plain)
        found, _ = model(rest, coded)
    same, divergence = agreement([expected], [found])
    return Quality(
        keys, values, share, error, same, divergence, _perplexity(found, rest), _perplexity(expected, rest)
    )


def _through(kv: KV, keys: str, values: str) -> tuple[KV, float, float]:
    """(what a tier gives back, bytes kept of one byte, what is lost of the worst plane)."""
    read, stored, size, worst = [], 0, 0, 0.0
    for layer in kv:
        planes = []
        for plane, name in zip(layer, (keys, values), strict=True):
            page = plane.bfloat16().contiguous().view(torch.uint8).numpy().tobytes()
            step = Quantize((name,), "bfloat16", (2 * plane.shape[-1],))
            coded = step.squeeze(page)
            back = step.restore(coded, len(page))
            stored, size, worst = stored + len(coded), size + len(page), max(worst, step.error(page, back))
            planes.append(torch.frombuffer(bytearray(back), dtype=torch.bfloat16).view(plane.shape).float())
        read.append((planes[0], planes[1]))
    return read, stored / size, worst


def _perplexity(logits: torch.Tensor, tokens: torch.Tensor) -> float:
    loss = functional.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:])
    return float(loss.exp())


def trained(steps: int) -> tuple[SmallLM, torch.Tensor]:
    """A model, and texts that it has not seen."""
    learnt, held = library_text()
    model = SmallLM()
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("training", total=steps)
        train(
            model,
            samples(learnt, 16, _PREFIX + _REST + 1),
            steps,
            told=lambda step, _loss: progress.update(task, completed=step + 1),
        )
    return model.eval(), next(samples(held, _TEXTS, _PREFIX + _REST, seed=1))


def plot(found: Sequence[Quality], file: Path) -> None:
    """Bytes kept against divergence."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "sgkv"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5))
    axes.scatter([one.stored_share for one in found], [one.kl_nats for one in found])
    for one in found:
        name = f"K {one.keys}, V {one.values}: {one.top1_agreement:.1%}"
        axes.annotate(
            name, (one.stored_share, one.kl_nats), textcoords="offset points", xytext=(5, 4), fontsize=8
        )
    axes.set(yscale="log", xlabel="bytes kept of one byte", ylabel="KL divergence, nats")
    axes.set_xlim(0.25, 0.75)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """The command; exit code 1 where an 8-bit format misses its bar."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    told = parser.parse_args()
    model, texts = trained(told.steps)
    found = [quality(model, texts, *codec) for codec in CODECS]
    table = Table(
        "keys", "values", "bytes kept", "lost", "top-1 agreement", "KL, nats", "perplexity", "without loss"
    )
    for one in found:
        figures = f"{one.stored_share:.3f}", f"{one.relative_error:.2%}", f"{one.top1_agreement:.2%}"
        rest = f"{one.kl_nats:.2e}", f"{one.perplexity:.4f}", f"{one.perplexity_plain:.4f}"
        table.add_row(one.keys, one.values, *figures, *rest)
    Console().print(table)
    if told.json:
        told.json.write_text(json.dumps([asdict(one) for one in found], indent=2))
    if told.plot:
        plot(found, told.plot)
    eight = [one for one in found if one.keys in EIGHT_BITS and one.values in EIGHT_BITS]
    sys.exit(int(any(one.top1_agreement < BAR for one in eight)))


if __name__ == "__main__":
    main()
