"""Who hears how far a run has come: nobody, or a bar with rate and ETA."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class Listener(Protocol):
    """Is told of progress, from any thread."""

    def prepare(self, what: str) -> None:
        """From now on it is found out what there is to do, and nobody knows how long that takes."""

    def begin(self, what: str, items: int, size: int) -> None:
        """From now on `items` items of `size` bytes in all are worked on."""

    def advance(self, size: int) -> None:
        """One more item is done, of `size` bytes."""


class Silent:
    """Hears nothing."""

    def prepare(self, what: str) -> None:
        pass

    def begin(self, what: str, items: int, size: int) -> None:
        pass

    def advance(self, size: int) -> None:
        pass


class Bars:
    """A bar on standard error: bytes, rate, time taken and time left."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )
        self._bar: TaskID | None = None

    def prepare(self, what: str) -> None:
        self._show(what, None)

    def begin(self, what: str, items: int, size: int) -> None:
        self._show(f"{what} ({items})", size)

    def advance(self, size: int) -> None:
        if self._bar is not None:
            self._progress.advance(self._bar, size)

    def _show(self, what: str, size: int | None) -> None:
        if self._bar is not None:
            self._progress.remove_task(self._bar)
        self._bar = self._progress.add_task(what, total=size)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
