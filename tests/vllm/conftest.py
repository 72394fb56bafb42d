"""Engines for the tests in this folder."""

import pytest

from sgkv.testing.vllm import VllmHost
from tests.vllm.rig import Rig


@pytest.fixture(scope="session")
def rig(vllm_host: VllmHost, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return Rig(vllm_host, tmp_path_factory.mktemp("rig"))
