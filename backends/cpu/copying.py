"""Memory copies that let other Python threads run.

Slice assignment between memoryviews keeps the GIL for the whole copy, which would stop the
engine's scheduler for milliseconds a page. `ctypes.memmove` lets go of it, at about a
microsecond a call; so small copies take the first way and large ones the second.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable

from sgkv.backends.base import Buffer

_LARGE = 32 << 10
"""Bytes from which releasing the GIL is worth its price: a copy of this size takes about 3 µs."""


class _PyBuffer(ctypes.Structure):
    """`Py_buffer` of CPython's stable ABI (3.11 and later)."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None

Move = tuple[Callable[[int, int, int], object], int, int, int]
"""How to copy, to which address, from which, and how many bytes."""

_holding_the_gil = ctypes.PyDLL(None).memmove
_holding_the_gil.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_holding_the_gil.restype = None


def address_of(view: Buffer) -> int:
    """Where a contiguous view's bytes lie; good for as long as the caller keeps the view."""
    if not view.readonly:
        return writable_address_of(view)
    raw = _PyBuffer()
    _get_buffer(view, ctypes.byref(raw), 0)
    try:
        return int(raw.buf)
    finally:
        _release_buffer(ctypes.byref(raw))


def writable_address_of(view: Buffer) -> int:
    """`address_of` for a view that is to be written to. Raises TypeError for one that cannot be."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def fitting(size: int) -> Callable[[int, int, int], object]:
    """How to copy so many bytes: what a `Move` begins with."""
    return ctypes.memmove if size >= _LARGE else _holding_the_gil


def move_all(moves: Iterable[Move]) -> None:
    """Carry out copies; whoever has made them keeps the memory alive."""
    for copying, to, origin, size in moves:
        copying(to, origin, size)


def copy(destination: Buffer, source: Buffer) -> None:
    """Copy between two views of the same length. Large copies run without the GIL."""
    size = len(source)
    if size < _LARGE:
        destination[:] = source
    elif len(destination) != size:
        raise ValueError(f"cannot copy {size} bytes into {len(destination)}")
    else:
        ctypes.memmove(address_of(destination), address_of(source), size)
