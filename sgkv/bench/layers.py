"""Loading layer by layer while a model computes, with media and a model as slow as wanted.

The loader, its thread, its ring of buffers and SGLang's counter of layers are the real ones. The media
is memory behind a simulated link, and a model that computes is one that sleeps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import LayerWiseLoadCounter

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.cpu import CpuBackend
from sgkv.backends.simulated import Simulated
from sgkv.bench.effort import BenchError
from sgkv.counters import Counters
from sgkv.sglang.linking.loads import Loading, Prepared
from sgkv.transfer.pages import DevicePages
from sgkv.transfer.staging import Event, Ring

LAYERS = 32
"""Of the model."""
_PAGE, _PAGES, _ROW = 16, 8, 64
_TIMEOUT = 60.0


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """A layer is too small to be worth more, and on busy cores they wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Media:
    """One load: a blob a layer, copied into a staging buffer at the speed of the link."""

    def __init__(self, seconds: float) -> None:
        """`seconds` a layer."""
        slots = _PAGES * _PAGE
        self._planes = [[torch.zeros(slots, _ROW) for _ in range(LAYERS)] for _ in ("keys", "values")]
        self._pages = DevicePages(*self._planes, page_size=_PAGE)
        self._slots = torch.arange(slots)
        self.layer_bytes = _PAGES * self._pages.layer_bytes
        memory = CpuBackend(4 * LAYERS * self.layer_bytes)
        self._blobs = [os.urandom(self.layer_bytes) for _ in range(LAYERS)]
        memory.put([PutItem(str(layer), [memoryview(blob)]) for layer, blob in enumerate(self._blobs)])
        self._link = Simulated(memory, bandwidth_bytes_s=self.layer_bytes / seconds)

    def send(self, layer: int, ring: Ring) -> Event | None:
        buffer = ring.next()
        view = buffer.view[: self.layer_bytes]
        (status,) = self._link.get([GetItem(str(layer), [Part(0, view)])])
        if status is not Status.OK:
            raise BenchError(f"the media answers {status.value} for layer {layer}")
        return ring.to_device(buffer, self.layer_bytes, partial(self._pages.unpack_layer, layer, self._slots))

    def require_loaded(self) -> None:
        """Raises BenchError unless every layer is in place."""
        for layer, blob in enumerate(self._blobs):
            rows = [plane[layer].view(_PAGES, -1) for plane in self._planes]
            loaded = torch.cat(rows, dim=1).contiguous().view(torch.uint8).numpy().tobytes()
            if loaded != blob:
                raise BenchError(f"layer {layer} was not loaded")

    def close(self) -> None:
        self._link.close()


class Model:
    """Waits for each layer and computes it; one load after the other."""

    def __init__(self, media: Media, compute: float) -> None:
        """`compute` seconds a layer."""
        self._media, self._compute = media, compute
        self._counter = LayerWiseLoadCounter(LAYERS)
        ring = Ring(torch.device("cpu"), media.layer_bytes)
        self._loading = Loading(self._counter, ring, Counters(), layer_wise=True, timeout=_TIMEOUT)

    def run(self) -> None:
        """Load and compute every layer. Raises BenchError where a load has failed."""
        self._loading.queue("request", Prepared([self._media]))
        index = self._loading.start(())
        self._counter.set_consumer(index)
        for layer in range(LAYERS):
            self._counter.wait_until(layer)
            time.sleep(self._compute)
        if not self._counter.finish(index):
            raise BenchError("a layer could not be loaded")

    def close(self) -> None:
        self._loading.close()
