"""Wheel and sdist: what is in them, and what can be imported once they are installed."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

from sgkv import __version__
from tests.packaging.conftest import Built, run


def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def modules(source: Path) -> set[str]:
    """The files that belong in a wheel, by their path in it."""
    found = {
        f"sgkv/{path.relative_to(source / 'sgkv')}"
        for path in (source / "sgkv").rglob("*.py")
        if not path.is_symlink()
    }
    for name in ("backends", "triton_kernels"):
        found |= {f"sgkv/{path.relative_to(source)}" for path in (source / name).rglob("*.py")}
    return found


def test_the_wheel_holds_every_module_once(built: Built) -> None:
    packed = {name for name in members(built.wheel) if name.endswith(".py")}
    assert packed == modules(built.source)


def test_the_wheel_holds_the_type_marker_and_the_licence(built: Built) -> None:
    names = members(built.wheel)
    assert "sgkv/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_a_wheel_from_the_sdist_equals_one_from_the_tree(built: Built) -> None:
    assert members(built.wheel) == members(built.direct_wheel)


def test_the_sdist_holds_files_where_the_tree_has_links(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        entries = {entry.name.partition("/")[2]: entry for entry in archive.getmembers()}
    assert entries["sgkv/backends/base.py"].isfile()
    assert not [name for name, entry in entries.items() if entry.issym() or entry.islnk()]
    assert not [name for name in entries if name.split("/")[0] in ("backends", "triton_kernels")]


def test_installed_it_adds_one_top_level_name(built: Built, installed: Path) -> None:
    assert {name.split("/")[0] for name in members(built.wheel)} == {"sgkv", f"sgkv-{__version__}.dist-info"}
    code = "import importlib.util as u, json; print(json.dumps([bool(u.find_spec(n)) for n in %r]))"
    names = ("backends", "triton_kernels", "sgkv")
    assert json.loads(run(installed, "-I", "-c", code % (names,))) == [False, False, True]


def test_installed_the_subpackages_import(installed: Path) -> None:
    code = "import sgkv.backends.base, sgkv.triton_kernels as t; print(t.__name__, sgkv.__version__)"
    assert run(installed, "-I", "-c", code).split() == ["sgkv.triton_kernels", __version__]


def test_installed_it_offers_its_command_and_its_plugins(built: Built) -> None:
    (text,) = [
        raw.decode() for name, raw in members(built.wheel).items() if name.endswith("entry_points.txt")
    ]
    lines = text.splitlines()
    assert "sgkv = sgkv.cli:main" in lines
    plugins = lines[lines.index("[sglang.srt.plugins]") + 1 :]
    assert plugins[:2] == ["sgkv = sgkv.sglang.plugin:install", "sgkv_cpu = sgkv.sglang.cpu:install"]
