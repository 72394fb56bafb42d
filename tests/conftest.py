"""What every test may rely on: the installed SGLang can be imported on a machine without a GPU.

Servers that tests start get the same through `cpu_environment`; this is for tests that import SGLang
in their own process, to compare with it or to build its host pools.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from sgkv.sglang.cpu import cpu_environment
from sgkv.sglang.cpu.stand_ins import install_stand_ins
from sgkv.testing.vllm import VllmHost

os.environ.update({name: value for name, value in cpu_environment().items() if name.startswith("SGLANG_")})
install_stand_ins()

# Cores are shared with whatever else runs: a slow example is not a failure.
settings.register_profile("sgkv", deadline=None)
settings.load_profile("sgkv")


@pytest.fixture(scope="session")
def vllm_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmHost]:
    """vLLM, in the environment of its own that `make setup-vllm` builds: imported once for all engines."""
    with VllmHost(tmp_path_factory.mktemp("vllm") / "log") as host:
        yield host
