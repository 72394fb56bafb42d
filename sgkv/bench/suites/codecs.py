"""What a tier's codecs cost a page and what they save, and sealing beside `openssl speed`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator

import numpy as np

from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.timing import interleave
from sgkv.codecs.coding import Recipe
from sgkv.codecs.envelope import KEY_BYTES, SALT_BYTES
from sgkv.codecs.quantizing import step_name
from sgkv.codecs.sealing import Seal
from sgkv.codecs.squeezing import Chain, chain

_HEADS, _DIM = 8, 128
_PAGE = 1 << 20
_HIDDEN = 256
_RECIPES = {
    "lz4": Recipe("lz4", planes=False),
    "lz4_planes": Recipe("lz4"),
    "zstd1": Recipe("zstd:1", planes=False),
    "zstd1_planes": Recipe("zstd:1"),
    "zstd3_planes": Recipe("zstd:3"),
}
_LOSSY = ("int8", "fp8", "int4", "nf4")
_QUANTIZES = Bar("ratio_to_raw", ">=", 0.5, "of memcpy")
_LZ4_DECODES = Bar("value", ">=", 1, "GB/s")
_OPENSSL = Bar("ratio_to_raw", ">=", 0.8, "of openssl speed")
_SPEED = re.compile(r"^aes-256-gcm\s+([0-9.]+)k\s*$", re.IGNORECASE | re.MULTILINE)


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """``{codec}_encode``, ``{codec}_decode``: one core; ``aesgcm``: sealing a page.

    What codecs that lose something do to a model's answers, `python -m scripts.codec_quality` measures.
    """
    page = keys_page(effort.of(_PAGE, least=1 << 14))
    for name, recipe in _RECIPES.items():
        yield from _codec(name, recipe.chain("bfloat16"), page, effort)
    for name in _LOSSY:
        lossy = chain([step_name((name, name), "bfloat16", (2 * _DIM, 2 * _DIM))])
        yield from _codec(name, lossy, page, effort)
    yield _sealing(page, effort)


def keys_page(size: int) -> bytes:
    """Bytes of bfloat16 keys as a layer of an untrained model makes them: hidden states times weights.

    Close to the worst case: nothing was learnt that would repeat.
    """
    random = np.random.default_rng(0)
    tokens = size // (2 * _HEADS * _DIM)
    hidden = random.standard_normal((tokens, _HIDDEN), np.float32)
    weights = random.standard_normal((_HIDDEN, _HEADS * _DIM), np.float32) * 0.02
    return (np.ascontiguousarray(hidden @ weights).view(np.uint32) >> 16).astype("<u2").tobytes()


def _codec(name: str, steps: Chain, page: bytes, effort: Effort) -> Iterator[Record]:
    stored = bytes(steps.squeeze(page))
    read = bytes(steps.restore(stored, len(page)))
    if read != page and not steps.loses:
        raise BenchError(f"{name} does not bring a page back")
    calls: dict[str, Callable[[], object]] = {
        "encode": lambda: steps.squeeze(page),
        "decode": lambda: steps.restore(stored, len(page)),
        "raw": lambda: bytearray(page),
    }
    series = interleave(calls, effort.times(2))
    for call in ("encode", "decode"):
        bars = (_QUANTIZES,) if name == "int8" else ()
        if call == "decode" and name.startswith("lz4"):
            bars = (_LZ4_DECODES,)
        yield Record(
            "codecs",
            f"{name}_{call}",
            len(page) / series[call].wall / 1e9,
            "GB/s",
            ratio_to_raw=series[call].speed_over(series["raw"]),
            cpu_ratio_to_raw=series[call].cpu_over(series["raw"]),
            stored_share=len(stored) / len(page),
            relative_error=steps.error(page, read),
            bars=bars,
        )


def _sealing(page: bytes, effort: Effort) -> Record:
    seal = Seal(os.urandom(KEY_BYTES), os.urandom(SALT_BYTES), "key", b"meta")
    calls: dict[str, Callable[[], object]] = {"seal": lambda: seal.close(1, page)}
    speed = len(page) / interleave(calls, effort.times(4))["seal"].wall
    plain = _openssl(len(page))
    return Record(
        "codecs",
        "aesgcm",
        speed / 1e9,
        "GB/s",
        ratio_to_raw=speed / plain if plain else None,
        bars=(_OPENSSL,),
    )


def _openssl(size: int) -> float | None:
    """Bytes a second of `openssl speed` with messages of `size`; None where there is no openssl."""
    command = shutil.which("openssl")
    if command is None:
        return None
    options = ["speed", "-seconds", "1", "-bytes", str(size), "-evp", "aes-256-gcm"]
    done = subprocess.run([command, *options], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    found = _SPEED.search(done.stdout)
    if found is None:
        raise BenchError(f"openssl speed said something unknown: {done.stdout[-200:]}{done.stderr[-200:]}")
    return float(found[1]) * 1000
