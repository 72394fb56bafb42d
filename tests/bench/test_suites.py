"""Each suite, with next to no data: which cases it has, and that the figures are figures."""

from __future__ import annotations

import math
from contextlib import closing
from itertools import islice

import pytest
import torch

from sgkv.bench.effort import Effort
from sgkv.bench.records import Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.suites import SUITES, measure

pytestmark = pytest.mark.slow

LITTLE = Effort(scale=0.01, rounds=1)
BLOBS = [f"{operation}_{size}" for size in ("64KiB", "1MiB", "8MiB") for operation in ("put", "get")]
FIXED = ["put_fixed_us", "get_fixed_us"]
KERNELS = ["pack", "unpack", "pack_int8", "unpack_int8", "pack_fp8", "unpack_fp8", "rotate"]
COMPILED = [
    f"compile_{kernel}_{target}"
    for kernel in KERNELS
    for target in ("sm80", "sm90", "sm100", "gfx942", "gfx950")
]
MOVED = [
    f"{way}_{model}"
    for model in ("llama8b", "llama70b_tp8", "deepseek_mla")
    for way in ("pack", "unpack", "d2h", "h2d")
    if torch.cuda.is_available()
]
IN_CELLS = ["set_8MiB_cells", "get_8MiB_cells"]
SQUEEZING = ("lz4", "lz4_planes", "zstd1", "zstd1_planes", "zstd3_planes")
CASES = {
    "hicache": [
        *(
            f"{call}_{size}_{tier}"
            for size in ("1MiB", "8MiB")
            for tier in ("cpu", "disk")
            for call in ("set", "get")
        ),
        *IN_CELLS,
        *(f"{call}_fixed_us_{tier}" for tier in ("cpu", "disk") for call in ("set", "get")),
    ],
    "cpu": BLOBS + FIXED,
    "disk": BLOBS + FIXED,
    "lookup": ["cpu_100k", "cpu_100k_miss", "disk_100k", "disk_100k_miss"],
    "hash": ["sha256_102400", "sha256_102400_array"],
    "startup": ["import_sgkv"],
    "trouble": ["bare_wait_p99", "exists_p99_hung_disk", "get_p99_hung_disk"],
    "s3": [  # and first tokens of two engines beside each other, of which e2e/test_bucket has the like
        *(f"{operation}_8MiB_c8{other}" for operation in ("get", "put") for other in ("", "_boto3")),
        "head_c16",
        *(f"lookup_400{how}" for how in ("", "_asked", "_known")),
    ],
    "kernels": COMPILED + MOVED,
    "linker": [  # and first tokens, of which e2e/test_linker has the like
        f"layerwise_overlap{how}" for how in ("", "_slow_load", "_slow_compute")
    ],
    "codecs": [
        *(
            f"{codec}_{call}"
            for codec in (*SQUEEZING, "int8", "fp8", "int4", "nf4")
            for call in ("encode", "decode")
        ),
        "aesgcm",
    ],
    "mooncake": [
        *(f"{operation}_{batch}" for batch in ("1MiB_b16", "8MiB_b8") for operation in ("put", "get")),
        "lookup_400",
        "pd_1MiB",
    ],
    "node": [
        "lookup_100k",
        *(
            f"{call}_{size}{kind}"
            for size in ("1MiB", "8MiB")
            for kind in ("", "_pool")
            for call in ("set", "get")
        ),
        "engine_cpu_per_gb",
        "disk_to_engine",
    ],
    "control": ["admit_rate", "lookup_100k_1000i"],
    "blend": ["ttft_8x512"],
    "decide": ["gate", "evict_lru", "evict_s3fifo", "evict_reuse"],
    "valkey": ["get_1MiB", "put_1MiB", "lookup_400"],
    "vllm": ["tier_store_1MiB", "tier_load_1MiB", "tier_lookup_400", "tier_lookup_400_first"],
}
BARRED = {
    "hicache": set(CASES["hicache"]) - set(IN_CELLS),
    "cpu": set(FIXED),
    "disk": set(FIXED),
    "lookup": {"cpu_100k", "disk_100k"},
    "hash": set(CASES["hash"]),
    "startup": {"import_sgkv"},
    "trouble": {"exists_p99_hung_disk", "get_p99_hung_disk"},
    "s3": {"get_8MiB_c8", "get_8MiB_c8_boto3", "put_8MiB_c8", "lookup_400"},
    "mooncake": set(CASES["mooncake"]),
    "node": set(CASES["node"]),
    "control": set(CASES["control"]),
    "decide": {"gate"},
    "valkey": set(CASES["valkey"]),
    "vllm": {"tier_store_1MiB", "tier_load_1MiB", "tier_lookup_400"},
    "kernels": {case for case in COMPILED + MOVED if not case.startswith("h2d")},
    "linker": set(CASES["linker"]),
    "codecs": {"lz4_decode", "lz4_planes_decode", "int8_encode", "int8_decode", "aesgcm"},
    "blend": {"ttft_8x512"},
}
"""Cases that the project promises something for."""
END_ON_SERVERS = {"s3", "linker"}
"""Suites whose last cases start engines."""


@pytest.fixture(scope="module", params=SUITES)
def suite(request: pytest.FixtureRequest) -> tuple[str, list[Record]]:
    count = len(CASES[request.param]) if request.param in END_ON_SERVERS else None
    with Scratch() as scratch, closing(measure(request.param, LITTLE, scratch)) as records:
        return request.param, list(islice(records, count))


def test_it_has_its_cases(suite: tuple[str, list[Record]]) -> None:
    name, records = suite
    assert [record.case for record in records] == CASES[name]
    assert {record.suite for record in records} == {name}


def test_what_is_promised_is_judged(suite: tuple[str, list[Record]]) -> None:
    name, records = suite
    assert {record.case for record in records if record.ok is not None} == BARRED[name]


def test_figures_are_figures(suite: tuple[str, list[Record]]) -> None:
    for record in suite[1]:
        ratios = (record.ratio_to_raw, record.cpu_ratio_to_raw, record.ratio_to_peer)
        assert math.isfinite(record.value)
        assert all(math.isfinite(ratio) and ratio > 0 for ratio in ratios if ratio is not None)
        assert record.value > 0 or "fixed" in record.case or record.suite in ("startup", "mooncake")


def test_what_sglang_does_too_is_compared_with_it(suite: tuple[str, list[Record]]) -> None:
    name, records = suite
    compared = {record.case for record in records if record.ratio_to_peer is not None}
    fixed = {case for case in CASES[name] if "fixed" in case or case in IN_CELLS}
    if name == "mooncake":
        assert compared == set(CASES[name]) - {"lookup_400", "pd_1MiB"}
    else:
        assert compared == (set(CASES[name]) - fixed if name in ("hicache", "lookup", "hash") else set())
