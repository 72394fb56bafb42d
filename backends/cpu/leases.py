"""Direct access to blobs in the arena, for those who would otherwise copy twice."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from sgkv.backends.base import Buffer, Status


class Lease:
    """A published blob that stays where it is: neither evicted nor overwritten until released.

    Deleting it makes the key unreadable at once, but not `view`.
    """

    __slots__ = ("_release", "offset", "view")

    def __init__(self, view: Buffer, offset: int, release: Callable[[], None]) -> None:
        self.offset = offset
        """Where in the arena it lies."""
        self.view = view
        """The blob, read-only. Do not use it after `release`: the block may hold another blob."""
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Give the blob back to eviction. Raises RuntimeError when it was released before."""
        release, self._release = self._release, None
        if release is None:
            raise RuntimeError("lease was released before")
        release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._release is not None:
            self.release()


class Reservation:
    """Room for one blob that nobody can read yet. Fill `view`, then `commit`; or `abort`."""

    __slots__ = ("_end", "offset", "view")

    def __init__(self, view: Buffer, offset: int, end: Callable[[bool, int | None], Status]) -> None:
        self.offset = offset
        """Where in the arena it lies."""
        self.view = view
        """The blob's bytes, writable until `commit` or `abort`."""
        self._end: Callable[[bool, int | None], Status] | None = end

    def commit(self, expires_at: int | None = None) -> Status:
        """Publish: OK, EXISTS where another writer of the key was faster, CLOSED after close.

        `expires_at` in Unix seconds, where that is only known now that the blob is here; 0 is never.
        Raises RuntimeError when the reservation has ended before.
        """
        return self._finish(True, expires_at)

    def abort(self) -> None:
        """Give the room back. Raises RuntimeError when the reservation has ended before."""
        self._finish(False, None)

    def _finish(self, publish: bool, expires_at: int | None) -> Status:
        end, self._end = self._end, None
        if end is None:
            raise RuntimeError("reservation was committed or aborted before")
        return end(publish, expires_at)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._end is not None:
            self.abort()
