"""Stand-ins appear only where they are asked for and needed, and never pretend to compute."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from sgkv.sglang.cpu import cpu_environment
from sgkv.sglang.cpu.environment import CPU_ENGINE
from sgkv.sglang.cpu.stand_ins import StandInUsedError, install_stand_ins

SITE = cpu_environment()["PYTHONPATH"].split(":")[0]


def run(code: str, env: Mapping[str, str]) -> str:
    """Run a program in a process of its own with exactly `env`."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=dict(env), capture_output=True, text=True, check=True).stdout.strip()


FOUND = """
import importlib.util
print([name for name in ("triton", "torchvision", "sgl_kernel") if importlib.util.find_spec(name)])
"""


def test_the_site_folder_alone_changes_nothing():
    without, with_folder = run(FOUND, {}), run(FOUND, {"PYTHONPATH": SITE})
    assert with_folder == without
    modules = run("import sys; print('sgkv' in sys.modules)", {"PYTHONPATH": SITE})
    assert modules == "False"


def test_every_process_under_the_environment_finds_all_packages():
    spawned = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {FOUND!r}], check=True)"
    assert run(spawned, cpu_environment()) == "['triton', 'torchvision', 'sgl_kernel']"


def test_the_plugin_does_nothing_without_the_cpu_engine():
    code = "import sys; from sgkv.sglang.cpu import install; install(); print('sglang' in sys.modules)"
    assert run(code, {}) == "False"
    assert run(code, {CPU_ENGINE: "0"}) == "False"


def test_definitions_import_and_launches_raise():
    """Where triton is installed, for the tests of its kernels, its stand-in comes before it."""
    code = """
import sys
from sgkv.sglang.cpu.stand_ins import StandInFinder
sys.meta_path.insert(0, StandInFinder(["triton", "sgl_kernel"]))
import triton, triton.language as tl, sgl_kernel
from triton.runtime.driver import anything
@triton.autotune(configs=[triton.Config({})], key=[])
@triton.jit
def kernel(x, BLOCK: tl.constexpr): ...
class Base(triton.runtime.JITFunction): ...
failed = []
for call in (kernel[(1,)], kernel, sgl_kernel.rmsnorm, triton.testing.do_bench, anything):
    try:
        call(1)
    except RuntimeError as error:
        failed.append(str(error).split()[0])
print(len(failed), triton.cdiv(5, 2), triton.next_power_of_2(5))
"""
    assert run(code, {}) == "5 3 8"


def test_what_is_installed_is_left_alone():
    assert install_stand_ins(["json", "pytest"]) == frozenset()
    assert json.loads("1") == 1


def test_a_missing_package_is_stood_in_for_once():
    name = "sgkv_no_such_package"
    assert install_stand_ins([name]) == {name}
    assert install_stand_ins([name]) == frozenset()
    module = __import__(f"{name}.below")
    with pytest.raises(StandInUsedError, match=rf"{name}\.below\.call"):
        module.below.call()


def test_ranks_get_cores_of_their_own_and_share_them_where_there_are_too_few():
    import os

    cores = len(os.sched_getaffinity(0))
    groups = cpu_environment(tp=cores)["SGLANG_CPU_OMP_THREADS_BIND"].split("|")
    assert len(set(groups)) == len(groups) == cores
    assert len(cpu_environment(tp=cores + 1)["SGLANG_CPU_OMP_THREADS_BIND"].split("|")) == cores + 1
    assert cpu_environment(tp=cores)["OMP_NUM_THREADS"] == "1"


def test_the_environment_keeps_the_path_of_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert cpu_environment()["PYTHONPATH"] == f"{SITE}:{tmp_path}"
