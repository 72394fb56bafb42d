"""A real server whose KV events are followed: a controller knows what is on its device, beside its store."""

from collections.abc import Iterator

import httpx
import pytest

from sgkv.control.models import Lookup
from sgkv.decide.calibrating import asking, calibrate, served_model
from sgkv.testing.server import SglangServer
from sgkv.testing.waiting import wait_until
from tests.control.conftest import Controller, serving, token_of
from tests.e2e.rig import Folder, full_tokens, prompt, settings
from tests.e2e.served import MakeServer, Served

pytestmark = pytest.mark.server

PAGE = 64
SECONDS = 30.0


@pytest.fixture(scope="module")
def fleet() -> Iterator[Controller]:
    with serving(stale_after=600.0) as controller:
        yield controller


@pytest.fixture(scope="module")
def llama(
    make_server: MakeServer, fleet: Controller, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = Folder(tmp_path_factory.mktemp("events") / "kv")
    ends = f"ipc://{tmp_path_factory.mktemp('ends')}/kv"
    control = {"url": fleet.url, "token": token_of("agent"), "instance": "one", "every": 0.1}
    control["events"] = {"endpoint": ends, "replay": f"{ends}.replay"}
    publisher = f'{{"publisher": "zmq", "endpoint": "{ends}", "replay_endpoint": "{ends}.replay"}}'
    server: SglangServer = make_server(
        "llama",
        storage_config={**settings(folder), "control": control},
        extra_args=("--kv-events-config", publisher),
    )
    with server:
        yield Served(server, folder)


def devices(fleet: Controller, ids: list[int]) -> dict[str, int]:
    """How many leading pages of a prompt are known to be on each device."""
    found = fleet["reader"].namespaces()
    if not found:
        return {}
    matches = fleet["reader"].lookup(Lookup(namespace=found[0].digest, tokens=tuple(ids))).matches
    return dict(matches[0].devices) if matches else {}


def wait_for(fleet: Controller, ids: list[int], **expected: int) -> None:
    wait_until(lambda: devices(fleet, ids) == expected, f"a prompt to be on {expected}", SECONDS)


def test_how_fast_it_computes_can_be_measured(llama: Served):
    with httpx.Client(base_url=f"http://127.0.0.1:{llama.server.port}", timeout=60) as client:
        found = calibrate(asking(client, served_model(client)), [256, 1024, 2048], 3)
    assert list(found.seconds) == [256, 1024, 2048]
    assert found.prefill.tokens_s > 100


def test_a_prompt_is_on_the_device_until_it_is_flushed(llama: Served, fleet: Controller):
    ids = prompt(40)
    pages = full_tokens(ids, PAGE) // PAGE
    llama.generate(ids)
    wait_for(fleet, ids, gpu=pages, cpu=pages, disk=pages)
    llama.server.flush()
    wait_for(fleet, ids, cpu=pages, disk=pages)
    assert llama.generate(ids).cached_tokens == pages * PAGE
    wait_for(fleet, ids, gpu=pages, cpu=pages, disk=pages)
