"""One import of vLLM for all engines of these tests, models, and stores."""

from collections.abc import Iterator

import pytest

from sgkv.testing.vllm import VllmHost
from tests.vllm.rig import Rig


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmHost]:
    with VllmHost(tmp_path_factory.mktemp("vllm") / "log") as host:
        yield host


@pytest.fixture(scope="session")
def rig(host: VllmHost, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return Rig(host, tmp_path_factory.mktemp("rig"))
