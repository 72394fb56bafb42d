"""Two real SGLang servers behind the router, and a slice of a real trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from scripts.compare_routing import compare, prompts
from sgkv.replay.trace import read_trace
from sgkv.router.settings import RouterSettings
from sgkv.testing.models import write_model
from sgkv.testing.server import SglangServer
from tests.control.conftest import Controller, serving, token_of

pytestmark = pytest.mark.server

SLICE = Path(__file__).parent / "data" / "conversation_slice.jsonl"
PAGE = 64
NAMES = ("one", "two")


@pytest.fixture(scope="module")
def fleet() -> Iterator[Controller]:
    with serving(stale_after=600.0) as controller:
        yield controller


@pytest.fixture(scope="module")
def engines(fleet: Controller, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SglangServer]]:
    root = tmp_path_factory.mktemp("fleet")
    model = write_model(root / "model", "llama", seed=1)
    with ExitStack() as stack:
        started = []
        for name in NAMES:
            control = {"url": fleet.url, "token": token_of("agent"), "instance": name, "every": 0.1}
            control["events"] = {"endpoint": f"ipc://{root}/{name}", "replay": f"ipc://{root}/{name}.replay"}
            ends = f'"endpoint": "ipc://{root}/{name}", "replay_endpoint": "ipc://{root}/{name}.replay"'
            server = SglangServer(
                model,
                log_path=root / f"{name}.log",
                storage="sgkv",
                storage_config={"tiers": [{"type": "cpu", "capacity": "64MiB"}], "control": control},
                extra_args=("--sleep-on-idle", "--kv-events-config", f'{{"publisher": "zmq", {ends}}}'),
            )
            started.append(stack.enter_context(server))
        yield started


def test_more_is_found_than_by_taking_turns(engines: list[SglangServer], fleet: Controller) -> None:
    """That first tokens come sooner, too, `python -m scripts.compare_routing` shows."""
    behind = [
        {"url": f"http://127.0.0.1:{server.port}", "instance": name}
        for server, name in zip(engines, NAMES, strict=True)
    ]
    told = {"url": fleet.url, "token": token_of("reader"), "timeout": 1.0}
    settings = RouterSettings.model_validate({"engines": behind, "controller": told, "page_tokens": PAGE})
    requests = read_trace(SLICE)
    found = compare(settings, lambda salt: prompts(requests, PAGE, salt), clients=1)
    assert found["cache"].hit_rate > found["round_robin"].hit_rate + 0.1, found
