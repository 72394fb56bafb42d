"""Servers that several files of tests share: a start costs half a minute."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.testing.models import write_model
from sgkv.testing.server import SglangServer
from tests.e2e.rig import Folder, settings
from tests.e2e.served import MakeServer, Models, Served

QUIET = ("--sleep-on-idle",)
"""Without it an idle scheduler keeps a core busy."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Writes each model once: `models(kind, seed=1)`."""
    root, written = tmp_path_factory.mktemp("models"), {}

    def model(kind: str, seed: int = 1) -> Path:
        if (kind, seed) not in written:
            written[kind, seed] = write_model(root / f"{kind}-{seed}", kind, seed=seed)
        return written[kind, seed]

    return model


@pytest.fixture(scope="session")
def make_server(models: Models, tmp_path_factory: pytest.TempPathFactory) -> MakeServer:
    """A server that is not started yet: `make_server(kind, seed=1, **SglangServer's options)`."""

    def make(kind: str, seed: int = 1, **options: object) -> SglangServer:
        log = tmp_path_factory.mktemp(f"{kind}-log") / "log"
        extra = [*QUIET, *options.pop("extra_args", ())]
        return SglangServer(
            models(kind, seed), log_path=log, metrics=True, extra_args=extra, **{"storage": "sgkv", **options}
        )

    return make


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The folder that servers of every kind store in at once."""
    return Folder(tmp_path_factory.mktemp("shared") / "kv")


@pytest.fixture(scope="session")
def llama(make_server: MakeServer, shared_folder: Folder) -> Iterator[Served]:
    """A Llama at 64 tokens a page that has stored its answer to `first_ids` in the shared folder.

    Tests may attach other stores: each begins by attaching the one it needs.
    """
    server = make_server("llama", storage_config=settings(shared_folder))
    with server:
        served = Served(server, shared_folder)
        served.first = served.cold(served.first_ids)
        yield served
