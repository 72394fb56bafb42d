"""Every test that docs/guarantees.md names is there, and what it says of bounds is what is configured."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`([a-z0-9_/]+)::([A-Za-z0-9_]+)`", TEXT)) - {("backends/test_guard", "NAME")})


@cache
def defined(file: str) -> set[str]:
    """Functions, and what is imported to be collected here too."""
    path = ROOT / "tests" / f"{file}.py"
    if not path.exists():
        return set()
    nodes = list(ast.walk(ast.parse(path.read_text())))
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return imported | {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_the_test_exists(file: str, name: str) -> None:
    assert name in defined(file)


def test_every_promise_and_every_kind_of_fault_names_a_test() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    bare = [row for row in rows if "::" not in row]
    assert {row.split("|")[1].strip() for row in bare} <= {"promise", "call", "kind"}
