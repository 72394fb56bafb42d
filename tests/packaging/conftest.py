"""A copy of the source tree, and what is built from it, once a test run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "sgkv", "backends", "triton_kernels")


@dataclass(frozen=True, slots=True)
class Built:
    """Distributions of one source tree."""

    source: Path
    sdist: Path
    wheel: Path
    """Built from the sdist."""
    direct_wheel: Path
    """Built from the source tree."""


def run(*command: str | Path) -> str:
    """Standard output of a command that must succeed; what it said otherwise is the failure."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The pinned setuptools of this environment builds: no isolation, so no network."""
    root = tmp_path_factory.mktemp("packaging")
    source = root / "source"
    source.mkdir()
    for name in SOURCES:
        _copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--no-isolation"]
    run(*build, "--outdir", root / "chain", source)
    run(*build, "--wheel", "--outdir", root / "direct", source)
    (sdist,) = (root / "chain").glob("*.tar.gz")
    (wheel,) = (root / "chain").glob("*.whl")
    (direct_wheel,) = (root / "direct").glob("*.whl")
    return Built(source, sdist, wheel, direct_wheel)


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh virtual environment that holds the wheel and nothing else."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    python = venv / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", built.wheel)
    return python


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
