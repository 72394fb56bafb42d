"""What a bucket that does not answer costs the first token: SGLang with such a tier beside SGLang alone."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.sglang.ready import require_sglang
from sgkv.testing.pairs import Pair, Ratio
from sgkv.testing.s3 import tier_settings

_BAR = Bar("value", "<=", 1.05, "of SGLang alone")
_SECOND_SEED = 5000


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """Cases ``ttft_dead_bucket``, where connections are refused, and ``ttft_silent_bucket``, where they hang.

    Each is the time to the first token of unseen prompts, with memory, disk and such a bucket below
    SGLang, in multiples of SGLang's own without storage; the ratio of CPU times is of both servers'.
    Raises BenchError without SGLang.
    """
    require_sglang()
    try:
        yield from _measured(effort.times(2), scratch)
    except (RuntimeError, TimeoutError) as error:
        raise BenchError(str(error)) from error


def _measured(prompts: int, scratch: Scratch) -> Iterator[Record]:
    from sgkv.demo.baseline import FIRST_SEED, cold_pairs
    from sgkv.demo.engine import plain_server, prepare_model, sgkv_server

    folder = scratch.disk()
    model = prepare_model(folder)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        bucket = tier_settings("http://{}:{}".format(*nobody.getsockname()))
        with plain_server(model, folder) as plain, sgkv_server(model, folder / "kv", folder, bucket) as ours:
            dead = cold_pairs(plain, ours, model, prompts, FIRST_SEED)
            yield _record("ttft_dead_bucket", dead, _BAR)
            nobody.listen()
            silent = cold_pairs(plain, ours, model, prompts, _SECOND_SEED)
            yield _record("ttft_silent_bucket", silent)


def _record(case: str, pairs: list[Pair], *bars: Bar) -> Record:
    ratio, processors = Ratio.of_first_tokens(pairs), Ratio.of_processor_time(pairs)
    return Record("s3", case, ratio.mean, "times", ratio.error, cpu_ratio_to_raw=processors.mean, bars=bars)
