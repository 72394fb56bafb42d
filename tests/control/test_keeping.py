"""What survives the controller, on a real server of the Redis protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sgkv.control.client import ControlError
from sgkv.control.desk import Desk
from sgkv.control.keeping import Keeper, KeepingError
from sgkv.control.models import PinWish
from sgkv.control.registry import Registry
from sgkv.control.serving import Listening, in_background, make_server
from sgkv.testing.valkey import ValkeyServer
from sgkv.testing.waiting import wait_until
from tests.control.conftest import (
    DIGEST_A,
    HASHES,
    LIMITS,
    Controller,
    came,
    facts,
    populated,
    report,
    tokens,
)

SECONDS = 20.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    with ValkeyServer(tmp_path / "valkey") as running:
        yield running


def url(server: ValkeyServer) -> str:
    return f"valkey://{server.options.address}/0"


@pytest.fixture
def controllers(server: ValkeyServer):
    """One after the other over the same server: each a context manager."""

    class Kept:
        def __init__(self) -> None:
            self.keeper = Keeper(url(server), pause=0.05)

        def __enter__(self) -> Controller:
            desk = Desk(Registry(stale_after=60.0), self.keeper)
            self.running = in_background(make_server(tokens(), Listening(port=0), LIMITS, desk))
            return Controller(self.running.__enter__(), desk)

        def __exit__(self, *raised: object) -> None:
            self.running.__exit__(*raised)
            self.keeper.close()

    return Kept


def pin(controller: Controller, pages: int = 8) -> str:
    wish = PinWish(namespace=DIGEST_A, hashes=tuple(HASHES[:pages]), seconds=600)
    return controller["team-a"].pin(wish).id


def test_pins_outlive_the_controller_and_are_asked_for_again(controllers) -> None:
    with controllers() as controller:
        populated(controller)
        kept, dropped = pin(controller), pin(controller, 3)
        controller["team-a"].unpin(dropped)
    with controllers() as controller:
        assert [one.id for one in controller["admin"].pins()] == [kept]
        ack = controller.report(
            report("one", 0, changes=[came(DIGEST_A, 8)], namespaces=[facts(DIGEST_A, "team-a")])
        )
        assert [(one.doing, one.hashes) for one in ack.commands] == [("pin", list(HASHES))]


def test_what_is_drained_stays_so_until_it_is_said_otherwise(controllers) -> None:
    with controllers() as controller:
        populated(controller)
        controller["admin"].drain("one")
        assert [one.draining for one in controller["reader"].instances()] == [True, False]
    with controllers() as controller:
        populated(controller)
        assert [one.draining for one in controller["reader"].instances()] == [True, False]
        controller["admin"].undrain("one")
        assert [one.draining for one in controller["reader"].instances()] == [False, False]
        for name, status in (("admin", 404), ("operator", 403), ("team-b", 403)):
            with pytest.raises(ControlError) as refused:
                controller[name].undrain("one")
            assert refused.value.status == status
    with controllers() as controller:
        populated(controller)
        assert not any(one.draining for one in controller["reader"].instances())


def test_nobody_waits_for_a_server_that_is_away_and_what_changed_is_written_later(
    controllers, server: ValkeyServer
) -> None:
    with controllers() as controller:
        populated(controller)
        keeper = controller.desk._keeper
        wait_until(lambda: not keeper.waiting, "the state to be written", SECONDS)
        server.kill()
        kept = pin(controller)
        assert keeper.waiting
        server.start()
        wait_until(lambda: not keeper.waiting, "the pin to be written", SECONDS)
    with controllers() as controller:
        assert [one.id for one in controller["admin"].pins()] == [kept]


def test_a_controller_does_not_start_without_knowing_its_pins(server: ValkeyServer) -> None:
    with closing(Keeper(url(server))) as keeper:
        keeper._server.hset("sgkv/control", "pin/x", b"nonsense")
        with pytest.raises(KeepingError, match="cannot be read"):
            Desk(Registry(), keeper)
    server.kill()
    with closing(Keeper(url(server))) as keeper, pytest.raises(KeepingError):
        Desk(Registry(), keeper)
