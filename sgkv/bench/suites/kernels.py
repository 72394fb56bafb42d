"""The Triton kernels: what their binaries say on any machine, and how fast they are where a GPU is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch

_BARS = (Bar("registers", "<=", 64, "registers"), Bar("spills", "<=", 0, "spilled"))
_ALL_WIDE = Bar("wide_share", ">=", 1, "wide")
# Of four accesses in a thread of a quantizing kernel one is to a scale.
_SCALES_NARROW = Bar("wide_share", ">=", 0.75, "wide")


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """``compile_KERNEL_TARGET``: the worst of the models; with a GPU, ``{pack,unpack,d2h,h2d}_MODEL``."""
    _require_triton()
    from sgkv.triton_kernels.binaries import TARGETS
    from sgkv.triton_kernels.variants import VARIANTS

    for kernel in VARIANTS:
        for target in TARGETS:
            yield _compiled(kernel, target, effort)
    yield from _moved(effort)


def _compiled(kernel: str, target: str, effort: Effort) -> Record:
    from sgkv.triton_kernels.variants import MODELS, Variant

    models = list(MODELS.values())[: effort.of(len(MODELS))]
    figures = [Variant.of(kernel, model, target).figures(target) for model in models]
    registers = max(figure.registers for figure in figures)
    return Record(
        "kernels",
        f"compile_{kernel}_{target}",
        registers,
        "registers",
        registers=registers,
        spills=max(figure.spills for figure in figures),
        wide_share=min(figure.wide_share for figure in figures),
        bars=(*_BARS, _SCALES_NARROW if kernel.endswith("8") else _ALL_WIDE),
    )


def _moved(effort: Effort) -> Iterator[Record]:
    import torch

    from sgkv.bench.gpu import speeds
    from sgkv.triton_kernels.variants import MODELS

    if torch.cuda.is_available():
        for name, model in MODELS.items():
            yield from speeds(name, model, torch.device("cuda"), effort)


def _require_triton() -> None:
    """Raises BenchError where kernels cannot be compiled."""
    try:
        version("torch"), version("triton")
    except PackageNotFoundError as missing:
        raise BenchError(f"the kernels need {missing.name}: pip install sgkv[triton]") from missing
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise BenchError("TRITON_INTERPRET=1 is set: kernels would be interpreted, not compiled")
