"""Objects that must not be freed while the process lives."""

from __future__ import annotations

import ctypes


def keep_forever(*objects: object) -> None:
    """Add a reference that nothing gives back, not even the interpreter's end.

    The library's destructor closes the connection. In a forked child, where its threads are missing,
    that would hang; next to a native call that hangs it would end the process.
    """
    for thing in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
