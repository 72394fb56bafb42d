"""Instances and devices as bits: four devices an instance, one bit each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum


class Device(StrEnum):
    """Where an instance has KV, fastest first."""

    GPU = "gpu"
    CPU = "cpu"
    DISK = "disk"
    REMOTE = "remote"
    """A pool, bucket or server that others reach too."""

    @property
    def lane(self) -> int:
        """Index of its bit among those of an instance."""
        return DEVICES.index(self)


DEVICES = tuple(Device)
_WIDTH = len(DEVICES)
_ALL = (1 << _WIDTH) - 1


def bit_of(slot: int, device: Device) -> int:
    return 1 << (slot * _WIDTH + device.lane)


def bits_of(slot: int) -> int:
    """Every device of an instance."""
    return _ALL << (slot * _WIDTH)


def place_of(bit: int) -> tuple[int, Device]:
    """(slot, device) of the bit at an index."""
    slot, device = divmod(bit, _WIDTH)
    return slot, DEVICES[device]


def any_device(masks: Iterable[int], slots: int) -> Iterator[int]:
    """Each mask with one bit an instance, its first, that says whether any device has it.

    Neighbours mostly are the same object, and are then folded once.
    """
    lanes = sum(1 << (slot * _WIDTH) for slot in range(slots))
    last, folded = 0, 0
    for mask in masks:
        if mask is not last:
            last, folded = mask, (mask | mask >> 1 | mask >> 2 | mask >> 3) & lanes
        yield folded


def leading(masks: Iterable[int], alive: int) -> dict[int, int]:
    """For each bit of `alive` in the first mask, how many leading masks have it."""
    runs: dict[int, int] = {}
    pages = 0
    for mask in masks:
        still = alive & mask
        if still != alive:
            if pages:
                runs.update(dict.fromkeys(_bits(alive ^ still), pages))
            alive = still
            if not alive:
                break
        pages += 1
    if pages:
        runs.update(dict.fromkeys(_bits(alive), pages))
    return runs


def _bits(mask: int) -> Iterator[int]:
    """Indices of the bits that are set."""
    while mask:
        bit = mask.bit_length() - 1
        yield bit
        mask ^= 1 << bit
