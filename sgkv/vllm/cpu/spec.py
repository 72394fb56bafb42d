"""The offload spec for vLLM on a CPU: ``spec_name: CpuTieringSpec, spec_module_path: sgkv.vllm.cpu.spec``.

`TieringOffloadingSpec.get_worker` of vLLM 0.32 refuses a machine without a GPU, because its worker copies
with CUDA. This one copies with torch and leaves everything else as it is.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CpuWorker(OffloadingWorker):
    """Copies blocks between vLLM's KV tensors and its rows, at once and in the caller's thread."""

    def __init__(self, kv_caches: Any, blocks_per_chunk: int, region: Any) -> None:
        """`kv_caches` are vLLM's `CanonicalKVCaches`: int8 ``(blocks, page)``, and each group's tensors."""
        self._groups = kv_caches.group_data_refs
        self._blocks_per_chunk = blocks_per_chunk
        self._region = region
        self._blocks = [each.tensor.view(torch.int8) for each in kv_caches.tensors]
        self._rows = [
            region.create_next_worker_view(each.page_size_bytes * blocks_per_chunk)
            for each in kv_caches.tensors
        ]
        self._finished: list[Any] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._transfer(job_id, src_spec, dst_spec, to_rows=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
        """`expedited` came with vLLM 0.33: no copy here waits for another."""
        return self._transfer(job_id, dst_spec, src_spec, to_rows=False)

    def get_finished(self) -> list[Any]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Nothing is ever under way."""

    def shutdown(self) -> None:
        self._blocks.clear()
        self._rows.clear()
        self._region.cleanup()

    def _transfer(self, job_id: int, device: Any, host: Any, *, to_rows: bool) -> bool:
        began, nbytes = time.monotonic(), 0
        at = first_chunk = 0
        for group, (size, start) in enumerate(zip(device.group_sizes, device.block_indices, strict=True)):
            skip = start % self._blocks_per_chunk  # a first chunk may be entered in its middle
            for index in range(size):
                chunk, slot = divmod(skip + index, self._blocks_per_chunk)
                row = int(host.chunk_ids[first_chunk + chunk])
                nbytes += self._copy(group, int(device.block_ids[at + index]), row, slot, to_rows)
            at += size
            first_chunk += -(-(size + skip) // self._blocks_per_chunk) if size else 0
        self._finished.append(TransferResult(job_id, True, nbytes, time.monotonic() - began))
        return True

    def _copy(self, group: int, block: int, row: int, slot: int, to_rows: bool) -> int:
        nbytes = 0
        for ref in self._groups[group]:
            blocks, rows = self._blocks[ref.tensor_idx], self._rows[ref.tensor_idx]
            page, size = blocks.shape[1], ref.page_size_bytes
            on_device, on_host = blocks[block, :size], rows[row, slot * page : slot * page + size]
            if to_rows:
                on_host.copy_(on_device)
            else:
                on_device.copy_(on_host)
            nbytes += size
        return nbytes


class CpuTieringSpec(TieringOffloadingSpec):
    """vLLM's tiering with a `CpuWorker`."""

    _worker: Any

    def get_worker(self, kv_caches: Any) -> Any:
        if self._worker is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=0 if self.replicated_layout else self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._worker = CpuWorker(kv_caches, self.blocks_per_chunk, region)
        return self._worker
