"""`make` on a bare machine: what is missing is installed, or named where it may not be.

The tests' machine has the packages and their run must not change it, so apt-get, sudo and id are stand-ins
on a PATH where the compiler is missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "system_packages.sh"
BASH = shutil.which("bash") or "bash"


class Bare:
    """A machine with a shell, without g++ and ninja."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "apt.log"
        self.tool("env", f'exec {shutil.which("env")} "$@"')

    def tool(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!{BASH}\n{script}\n")
        path.chmod(0o755)

    def apt(self) -> None:
        self.tool("apt-get", f'echo "$*" >> {self.log}')

    def setup(self, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BASH, str(SCRIPT), python],
            env={"PATH": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(tmp_path)


def test_root_installs_what_is_missing_and_no_more(bare: Bare) -> None:
    bare.apt()
    bare.tool("id", "echo 0")
    assert bare.setup().returncode == 0
    update, install = bare.log.read_text().splitlines()
    assert update.startswith("update")
    assert install.startswith("install -y")
    assert {"g++", "ninja-build"} <= set(install.split())
    assert "python3-venv" not in install.split()


@pytest.mark.parametrize(("answer", "package"), [("", "valkey-server"), ("exit 100", "redis-server")])
def test_the_server_is_valkey_where_the_archive_has_it(bare: Bare, answer: str, package: str) -> None:
    bare.apt()
    bare.tool("id", "echo 0")
    bare.tool("apt-cache", answer)
    assert bare.setup().returncode == 0
    assert package in bare.log.read_text().split()


def test_a_user_with_sudo_installs_through_it(bare: Bare) -> None:
    bare.apt()
    bare.tool("id", "echo 1000")
    bare.tool("true", "")
    bare.tool("sudo", '[ "$1" = -n ] && shift; exec "$@"')
    assert bare.setup().returncode == 0
    assert "g++" in bare.log.read_text()


def test_a_user_without_is_told_what_to_install(bare: Bare) -> None:
    bare.apt()
    bare.tool("id", "echo 1000")
    done = bare.setup()
    assert done.returncode == 1
    assert "Missing system packages (Debian names): g++ ninja-build" in done.stderr
    assert not bare.log.exists()


def test_another_distribution_is_told_too(bare: Bare) -> None:
    bare.tool("id", "echo 0")
    done = bare.setup()
    assert done.returncode == 1
    assert "g++" in done.stderr


def test_with_nothing_missing_nothing_is_run(bare: Bare) -> None:
    bare.apt()
    bare.tool("id", "exit 1")
    for name in ("g++", "ninja", "valkey-server"):
        bare.tool(name, "")
    done = bare.setup()
    assert (done.returncode, done.stdout) == (0, "")
    assert not bare.log.exists()


def test_an_old_python_is_refused_with_what_to_do(bare: Bare) -> None:
    bare.tool("python3", 'if [ "$1" = -V ]; then echo "Python 3.9.2"; else exit 1; fi')
    done = bare.setup(str(bare.folder / "python3"))
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "Python 3.9.2" in done.stderr
