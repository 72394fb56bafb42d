"""The layer-wise pipeline by a clock that only work moves, and the ring of buffers under it."""

from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgkv.backends.deadline import Deadline
from sgkv.store.span import Span
from sgkv.transfer.chunks import fetch
from sgkv.transfer.layers import HostPages, load_layers
from sgkv.transfer.pages import DevicePages
from sgkv.transfer.staging import Ring, StagingBuffer

TIMES = st.integers(1, 1000)


@dataclass
class Clocked:
    """A source whose layers take a given time each, in microseconds of its own clock."""

    seconds: int
    now: int = 0
    arrived: list[int] = field(default_factory=list)

    def send(self, _layer: int, _ring: Ring) -> None:
        self.now += self.seconds

    def note(self, _layer: int) -> None:
        self.arrived.append(self.now)


def total(arrivals: list[int], compute: int) -> int:
    """When a model is done whose layers take `compute` and begin when they have arrived."""
    now = 0
    for arrival in arrivals:
        now = max(now, arrival) + compute
    return now


@given(load=TIMES, compute=TIMES, layers=st.integers(1, 96))
def test_the_slower_of_loading_and_computing_decides(load: int, compute: int, layers: int):
    source = Clocked(load)
    load_layers([source], layers, Ring(torch.device("cpu"), 1), source.note)
    assert total(source.arrived, compute) <= max(compute, load) * layers * 1.05 + max(compute, load)
    assert total(source.arrived, compute) == load + compute + max(compute, load) * (layers - 1)


@given(load=TIMES, compute=TIMES)
def test_without_layers_it_would_be_the_sum(load: int, compute: int):
    source = Clocked(load)
    load_layers([source], 32, Ring(torch.device("cpu"), 1), source.note)
    assert total([source.arrived[-1]] * 32, compute) == 32 * (load + compute)


class Late:
    """An event of a device, which a CPU has not: it is done when somebody has waited for it."""

    def __init__(self) -> None:
        self.done = False

    def synchronize(self) -> None:
        self.done = True

    def query(self) -> bool:
        return self.done


@dataclass
class OnDevice:
    """Two layers under way at once; `log` has what happened in which order."""

    log: list[str]
    events: list[Late] = field(default_factory=list)

    def send(self, layer: int, _ring: Ring) -> Late:
        if layer >= 2:  # the ring has two buffers, so the oldest has to arrive first
            self.events[layer - 2].synchronize()
        self.log.append(f"send {layer}")
        self.events.append(Late())
        return self.events[-1]


def test_a_layer_is_sent_while_the_one_before_is_under_way():
    log: list[str] = []
    source = OnDevice(log)
    load_layers([source], 4, Ring(torch.device("cpu"), 1), lambda layer: log.append(f"arrived {layer}"))
    assert log == [
        "send 0", "send 1", "send 2", "arrived 0", "send 3", "arrived 1", "arrived 2", "arrived 3",
    ]  # fmt: skip


@given(pages=st.integers(1, 9), room=st.integers(1, 400), seed=st.integers(0, 100))
def test_any_buffer_size_moves_the_same_bytes(pages: int, room: int, seed: int):
    """Buffers smaller than a layer of one page are no use; from there on every size is."""
    generator = torch.Generator().manual_seed(seed)
    planes = [[torch.zeros(80, 2, width) for _ in range(3)] for width in (4, 2)]
    device = DevicePages(*planes, page_size=8)
    raw = torch.randint(0, 256, (pages, device.page_bytes), generator=generator, dtype=torch.uint8)
    views = [memoryview(page.numpy()) for page in raw]
    order = torch.randperm(10, generator=generator)[:pages]
    slots = (order[:, None] * 8 + torch.arange(8)).flatten()
    ring = Ring(torch.device("cpu"), device.layer_bytes + room)
    source = HostPages(device, {0: 0, 2: 1, 3: 2}, slots, views)
    arrived: list[int] = []
    load_layers([source], 4, ring, arrived.append)
    packed = torch.empty(pages * device.page_bytes, dtype=torch.uint8)
    device.pack(slots, packed)
    assert torch.equal(packed, raw.flatten())
    assert arrived == [0, 1, 2, 3]


def test_a_buffer_is_not_touched_before_its_transfer_has_ended():
    ring = Ring(torch.device("cpu"), 8)
    first, second = ring.next(), ring.next()
    first.done = late = Late()
    assert first is not second
    assert ring.next() is first
    assert late.done


def test_a_ring_carries_bytes_both_ways():
    ring, target = Ring(torch.device("cpu"), 8), torch.zeros(8, dtype=torch.uint8)
    buffer = ring.next()
    buffer.view[:4] = b"abcd"
    ring.to_device(buffer, 4, target[:4].copy_).synchronize()
    assert bytes(target.numpy()[:4]) == b"abcd"
    other = ring.next()
    ring.to_host(other, 4, partial(_reversed_into, target)).synchronize()
    assert bytes(other.view[:4]) == b"dcba"


def _reversed_into(source: torch.Tensor, buffer: torch.Tensor) -> None:
    buffer.copy_(source[:4].flip(0))


def test_a_ring_of_one_buffer_is_refused():
    with pytest.raises(ValueError, match="two buffers"):
        Ring(torch.device("cpu"), 8, buffers=1)


class Breaks:
    """A session that has one chunk to give, and then an error."""

    pages_per_chunk = 1

    def __init__(self) -> None:
        self.asked = 0

    def get(self, span: Span, _targets: object, _deadline: Deadline) -> list[None]:
        self.asked += 1
        if self.asked > 1:
            raise RuntimeError("a session that breaks")
        return [None] * len(span.hashes)


def test_what_was_sent_has_arrived_also_when_a_read_raises():
    """The slots are given back to the engine then."""
    device = DevicePages([torch.zeros(32, 4)], page_size=8)
    ring = Ring(torch.device("cpu"), device.page_bytes)
    sent: list[Late] = []

    def to_device(buffer: StagingBuffer, _size: int, _unpack: object, _rejected: object) -> Late:
        buffer.done = late = Late()
        sent.append(late)
        return late

    ring.to_device = to_device
    with pytest.raises(RuntimeError, match="breaks"):
        fetch(Breaks(), Span(["a", "b"], ()), device, torch.arange(16), ring, Deadline(None))
    assert [late.done for late in sent] == [True]
