"""The one place that knows which vLLM this is: 0.32 and 0.33.

Between the two the tier interface only grew. What differs is taken care of here, so that a third
version changes this file and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import OffloadingCounterMetadata
from vllm.v1.kv_offload.tiering.base import JobResult

SUPPORTED = ((0, 32), (0, 33))


def chunk_ids(job: Any) -> list[int]:
    """The rows of a `TransferJob`, in the order of `list(job.keys)`."""
    ids: list[int] = job.chunk_ids.tolist()
    return ids


def job_result(job_id: int, keys: Sequence[bytes], done: Sequence[bytes], seconds: float, nbytes: int) -> Any:
    """`done` are those of `keys` that were moved."""
    return JobResult(
        job_id=job_id,
        success=len(done) == len(keys),
        successful_keys=list(done),
        transfer_time=seconds,
        transfer_bytes=nbytes,
    )


def counter(documentation: str, label: str) -> Any:
    """Metadata of a counter with one label, or with none where `label` is empty."""
    return OffloadingCounterMetadata(documentation=documentation, labelnames=(label,) if label else ())


def stats(increments: dict[tuple[str, str], int]) -> Any:
    """VLLM's statistics object for increments by (metric, label value); None for none."""
    if not increments:
        return None
    found = OffloadingConnectorStats()
    for (name, value), amount in increments.items():
        found.increase_counter(name, amount, (value,) if value else ())
    return found


def supported(version: str) -> bool:
    """Whether this version of vLLM is one that the tier was written for; others may still work."""
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) in SUPPORTED
