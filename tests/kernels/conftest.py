"""A process of its own for the interpreter: Triton decides at import whether kernels are compiled or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from tests.kernels.interpreted import interpret

CALL_TIMEOUT = 120.0
"""Seconds for one comparison; a crash of the process fails the test at once."""

Interpreted = Callable[..., None]


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Interpreted]:
    """``interpreted(comparison, *arguments)`` runs it where kernels are interpreted, and fails as it does."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=interpret) as process:

        def run(comparison: Callable[..., None], *arguments: Any) -> None:
            process.submit(comparison, *arguments).result(CALL_TIMEOUT)

        yield run
