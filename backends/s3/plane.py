"""The data plane: one request for one object, with the bytes in the caller's buffers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from sgkv.backends.base import Buffer
from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.spans import Window
from sgkv.backends.s3.replies import Reply


class DataPlane(ABC):
    """Blocking calls, from any thread, one request each but for a session that was rejected.

    Names are whole object names. Every call raises Unreachable, Silent, Abandoned or Locked where it
    has no `Reply` to return; an HTTP error is a `Reply`. Nothing is retried here.
    """

    @abstractmethod
    def head(self, name: str, deadline: Deadline | None) -> Reply:
        """Whether there is an object, and its size."""

    @abstractmethod
    def get(self, name: str, window: Window, deadline: Deadline | None) -> Reply:
        """Fill the window's buffers, inside landings of `deadline`.

        A reply that is ok but not `filled` is of an object that ends before the window does.
        """

    @abstractmethod
    def put(
        self, name: str, buffers: Sequence[Buffer], headers: Mapping[str, str], deadline: Deadline | None
    ) -> Reply:
        """Create an object of the buffers' bytes; abandoned, it never appears (rule 8 of `Backend`)."""

    @abstractmethod
    def delete(self, name: str, deadline: Deadline | None) -> Reply:
        """Remove an object. S3 says the same whether there was one or not."""

    @abstractmethod
    def close(self) -> None:
        """Close idle connections. Idempotent."""
