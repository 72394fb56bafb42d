"""Making a page smaller without losing a bit of it.

Half of a 16-bit float's bytes are sign and exponent, which repeat within a page, and half are mantissa,
which is close to noise. `planes` puts the bytes of one kind next to each other, so that a compressor finds
what repeats. Measured on real KV in docs/codecs.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, TypeAlias

import numpy as np

from sgkv.codecs.errors import CodecError

Bytes: TypeAlias = bytes | memoryview


class Step(ABC):
    """One step of a chain; any thread. `name` is what the envelope says, parameters included."""

    name: str
    loses: ClassVar[bool] = False
    """Whether `restore` may bring back something else; only the first step of a chain may."""

    def coded_size(self, size: int) -> int:
        """Bytes of what `squeeze` makes of so many, of steps that others may follow."""
        return size

    def error(self, page: Bytes, restored: Bytes) -> float:
        """How much is lost of a page, relative."""
        return 0.0

    @abstractmethod
    def squeeze(self, data: Bytes) -> Bytes:
        """What is stored of `data`."""

    @abstractmethod
    def restore(self, data: Bytes, size: int) -> Bytes:
        """The `size` bytes that `data` was made of. Raises CodecError where it was made of none."""


class Planes(Step):
    """The first bytes of all elements, then their second bytes, and so on."""

    def __init__(self, item_bytes: int) -> None:
        """`item_bytes` of one element; what does not divide by it stays at the end as it is."""
        if item_bytes not in (2, 4, 8):
            raise CodecError(f"there are no planes of {item_bytes} bytes")
        self.name = f"planes:{item_bytes}"
        self._item = item_bytes

    def squeeze(self, data: Bytes) -> Bytes:
        flat, whole = self._split(data)
        out = np.empty_like(flat)
        elements = flat[:whole].view(f"<u{self._item}")
        for place, plane in enumerate(out[:whole].reshape(self._item, -1)):
            np.copyto(plane, elements >> (8 * place) if place else elements, casting="unsafe")
        out[whole:] = flat[whole:]
        return out.data

    def restore(self, data: Bytes, size: int) -> Bytes:
        if len(data) != size:
            raise CodecError(f"planes of {len(data)} bytes are not of {size}")
        flat, whole = self._split(data)
        out = np.empty_like(flat)
        elements = out[:whole].view(f"<u{self._item}")
        elements[:] = 0
        for place, plane in enumerate(flat[:whole].reshape(self._item, -1)):
            elements |= plane.astype(elements.dtype) << (8 * place)
        out[whole:] = flat[whole:]
        return out.data

    def _split(self, data: Bytes) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], int]:
        flat = np.frombuffer(data, np.uint8)
        return flat, len(flat) - len(flat) % self._item


class Zstd(Step):
    """Zstandard (RFC 8878)."""

    def __init__(self, level: int) -> None:
        """`level` 1 to 19; only the writer cares."""
        with _installed():
            from zstandard import ZstdCompressor
        if not 1 <= level <= 19:
            raise CodecError(f"zstd has levels from 1 to 19, not {level}")
        self.name = f"zstd:{level}"
        self._level = level
        self._make = ZstdCompressor

    def squeeze(self, data: Bytes) -> Bytes:
        return self._make(level=self._level).compress(data)

    def restore(self, data: Bytes, size: int) -> Bytes:
        from zstandard import ZstdDecompressor, ZstdError, frame_content_size

        try:
            # The frame's own word is looked at first: what claims to be larger than a page gets no memory.
            if frame_content_size(data) != size:
                raise CodecError(f"a frame of another size than {size} bytes")
            return ZstdDecompressor().decompress(data)
        except ZstdError as error:
            raise CodecError(str(error)) from error


class Lz4(Step):
    """LZ4 blocks."""

    name = "lz4"

    def __init__(self) -> None:
        with _installed():
            import lz4.block
        self._lz4 = lz4.block

    def squeeze(self, data: Bytes) -> Bytes:
        squeezed: bytes = self._lz4.compress(data, store_size=False)
        return squeezed

    def restore(self, data: Bytes, size: int) -> Bytes:
        try:
            restored: bytes = self._lz4.decompress(data, uncompressed_size=size)
        except self._lz4.LZ4BlockError as error:
            raise CodecError(str(error)) from error
        if len(restored) != size:
            raise CodecError(f"a block of {len(restored)} bytes, not of {size}")
        return restored


class Chain:
    """Steps one after the other, each in the order of writing."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)
        self.names = tuple(step.name for step in steps)

    @property
    def loses(self) -> bool:
        """Whether what is read may be other than what was written."""
        return any(step.loses for step in self._steps)

    def error(self, page: Bytes, read: Bytes) -> float:
        """Of what was lost, relative; 0 where nothing can be."""
        return max((step.error(page, read) for step in self._steps), default=0.0)

    def squeeze(self, page: Bytes) -> Bytes:
        """What is stored of a page: the page itself where the chain makes it no smaller."""
        return self.code(page)[0]

    def code(self, page: Bytes) -> tuple[Bytes, Bytes]:
        """What is stored of a page, and what will be read of that: the page, unless a step loses something.

        Raises CodecError for a page that a step cannot take.
        """
        data, read = page, page
        for step in self._steps:
            coded = step.squeeze(data)
            if step.loses:
                read = step.restore(coded, len(data))
            data = coded
        return (data, read) if len(data) < len(page) else (read, read)

    def restore(self, data: Bytes, size: int) -> Bytes:
        """The page of `size` bytes. Raises CodecError."""
        if len(data) == size:
            return data
        sizes = [size]
        for step in self._steps[:-1]:
            sizes.append(step.coded_size(sizes[-1]))
        for step, before in zip(reversed(self._steps), reversed(sizes), strict=True):
            data = step.restore(data, before)
        if len(data) != size:
            raise CodecError(f"{len(data)} bytes are no page of {size}")
        return data


@contextmanager
def _installed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise CodecError(f'{error}: pip install "sgkv[codecs]"') from error


def chain(names: Sequence[str]) -> Chain:
    """The chain that an envelope or a configuration names. Raises CodecError for one nobody knows."""
    return Chain([_step(name) for name in names])


def _step(name: str) -> Step:
    kind, _, parameter = name.partition(":")
    try:
        if kind == "quantize":
            from sgkv.codecs.quantizing import Quantize

            return Quantize.parse(parameter)
        if kind == "planes":
            return Planes(int(parameter))
        if kind == "zstd":
            return Zstd(int(parameter))
    except ValueError as error:
        raise CodecError(f"{name!r}: {error}") from error
    if name == "lz4":
        return Lz4()
    raise CodecError(f"{name!r} is no codec that this version knows")
