"""The external cache linker: what loading layer by layer hides, alone and on a server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.sglang.ready import require_sglang
from sgkv.bench.timing import interleave

_SLOW, _QUICK = 12e-3, 6e-3
"""Seconds a layer, far above what a sleep is late by."""
_CASES = {
    "layerwise_overlap": (_SLOW, _SLOW),
    "layerwise_overlap_slow_load": (_SLOW, _QUICK),
    "layerwise_overlap_slow_compute": (_QUICK, _SLOW),
}
"""Seconds to load and to compute a layer."""
_NO_SLOWER = Bar("value", "<=", 1.0, "of loading everything first")


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """``layerwise_overlap*``: ms until the last of 32 layers is computed; ``restored_ttft``: a ratio."""
    require_sglang()
    for case, (load, compute) in _CASES.items():
        yield _overlap(case, load, compute, effort)
    yield _restored(effort, scratch)


def _overlap(case: str, load: float, compute: float, effort: Effort) -> Record:
    """Beside the ideal, which does nothing but wait for as long.

    The bar is the longest that it may take, the slower of both a layer, 5 % more and one layer, as a speed.
    """
    from sgkv.bench.layers import LAYERS, Media, Model, one_torch_thread

    slower, quicker = max(load, compute), min(load, compute)
    least = (slower * LAYERS + quicker) / (slower * (LAYERS * 1.05 + 1))

    def ideal() -> None:
        for seconds in (quicker, *(slower for _ in range(LAYERS))):
            time.sleep(seconds)

    with one_torch_thread(), closing(Media(load)) as media, closing(Model(media, compute)) as model:
        model.run()
        media.require_loaded()
        series = interleave({"model": model.run, "ideal": ideal}, effort.rounds)
    return Record(
        "linker",
        case,
        series["model"].wall * 1e3,
        "ms",
        ratio_to_raw=series["model"].speed_over(series["ideal"]),
        bars=(Bar("ratio_to_raw", ">=", round(least, 3), "of the ideal"),),
    )


def _restored(effort: Effort, scratch: Scratch) -> Record:
    """Time to the first token of a prompt in the cpu tier, in multiples of loading all layers first."""
    from sgkv.bench.linked import restored_pairs
    from sgkv.testing.pairs import Ratio

    try:
        pairs = restored_pairs(effort.times(2), scratch.disk())
    except (RuntimeError, TimeoutError) as error:
        raise BenchError(str(error)) from error
    ratio = Ratio.of_first_tokens(pairs)
    return Record("linker", "restored_ttft", ratio.mean, "times", error=ratio.error, bars=(_NO_SLOWER,))
