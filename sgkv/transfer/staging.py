"""Staging memory and the stream that moves it: a ring of buffers, each in host and device memory.

On a GPU a buffer is a pair, pinned host memory and device memory, with one copy-engine transfer between
them. On a CPU both are the same memory, and torch's streams and events are empty: the same code then is
a plain copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch


class Event(Protocol):
    """Of torch, for any kind of device."""

    def synchronize(self) -> None: ...

    def query(self) -> bool: ...


@dataclass(slots=True)
class StagingBuffer:
    """One piece of a ring, for one transfer at a time."""

    host: torch.Tensor
    """uint8; pinned where the device is not the CPU."""
    device: torch.Tensor
    """uint8 of the same size; the same memory on a CPU."""
    view: memoryview
    """The bytes of `host`."""
    rejected: torch.Tensor
    """int64 ``[1]`` in host memory: the pool's `rejected` as of the last transfer."""
    done: Event | None = None
    """Recorded after the last transfer that was begun."""


class Ring:
    """At least two buffers in turn, on a stream of their own. One thread at a time."""

    def __init__(self, device: torch.device, buffer_bytes: int, buffers: int = 2) -> None:
        if buffers < 2 or buffer_bytes < 1:
            raise ValueError(f"a ring is two buffers or more that hold something, not {buffers}")
        self.buffer_bytes = buffer_bytes
        self._module: Any = torch.get_device_module(device)
        self._stream = self._module.Stream() if device.type == "cpu" else self._module.Stream(device)
        self.buffers = [_buffer(device, buffer_bytes) for _ in range(buffers)]
        self._turn = 0

    def next(self) -> StagingBuffer:
        """The buffer that has rested longest; waits until what it last carried has arrived."""
        buffer = self.buffers[self._turn]
        self._turn = (self._turn + 1) % len(self.buffers)
        if buffer.done is not None:
            buffer.done.synchronize()
        return buffer

    def follow(self, events: Iterable[Any]) -> None:
        """Begin nothing from now on before the device has come to `events`. Does not block."""
        for event in events:
            event.wait(self._stream)

    def to_device(
        self,
        buffer: StagingBuffer,
        size: int,
        unpack: Callable[[torch.Tensor], None],
        rejected: torch.Tensor | None = None,
    ) -> Event:
        """Send `size` bytes of `buffer` and let `unpack` distribute them; the event comes after both.

        `rejected`, of the pool, is fetched with them.
        """
        with self._module.stream(self._stream):
            if buffer.device is not buffer.host:
                buffer.device[:size].copy_(buffer.host[:size], non_blocking=True)
            unpack(buffer.device[:size])
            return self._recorded(buffer, rejected)

    def to_host(
        self,
        buffer: StagingBuffer,
        size: int,
        pack: Callable[[torch.Tensor], None],
        rejected: torch.Tensor | None = None,
    ) -> Event:
        """Let `pack` fill `size` bytes and fetch them into host memory; the event comes after both.

        `rejected`, of the pool, is fetched with them.
        """
        with self._module.stream(self._stream):
            pack(buffer.device[:size])
            if buffer.device is not buffer.host:
                buffer.host[:size].copy_(buffer.device[:size], non_blocking=True)
            return self._recorded(buffer, rejected)

    def drain(self) -> None:
        """Wait until every transfer has ended."""
        for buffer in self.buffers:
            if buffer.done is not None:
                buffer.done.synchronize()

    def _recorded(self, buffer: StagingBuffer, rejected: torch.Tensor | None) -> Event:
        if rejected is not None:
            buffer.rejected.copy_(rejected, non_blocking=True)
        event: Event = self._module.Event()
        event.record(self._stream)  # type: ignore[attr-defined]
        buffer.done = event
        return event


def _buffer(device: torch.device, size: int) -> StagingBuffer:
    if device.type == "cpu":
        host = memory = torch.empty(size, dtype=torch.uint8)
        rejected = torch.zeros(1, dtype=torch.int64)
    else:
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        memory = torch.empty(size, dtype=torch.uint8, device=device)
        rejected = torch.zeros(1, dtype=torch.int64, pin_memory=True)
    return StagingBuffer(host, memory, memoryview(host.numpy()), rejected)
