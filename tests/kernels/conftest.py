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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need a GPU are left out unless they are asked for: ``-m gpu``."""
    if "gpu" in config.getoption("markexpr"):
        return
    chosen = [item for item in items if not item.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("gpu")])
    items[:] = chosen


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Interpreted]:
    """``interpreted(comparison, *arguments)`` runs it where kernels are interpreted, and fails as it does."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=interpret) as process:

        def run(comparison: Callable[..., None], *arguments: Any) -> None:
            process.submit(comparison, *arguments).result(CALL_TIMEOUT)

        yield run
