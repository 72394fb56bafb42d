"""The API over HTTP: what it tells, and what becomes of orders."""

from __future__ import annotations

import json
import logging

import pytest

from sgkv.control.client import ControlClient, ControlError
from sgkv.control.models import ClearWish, Lookup, MoveWish, PinWish, PrefetchWish, Prompt
from sgkv.control.wire import Progress, Report
from tests.control.conftest import DIGEST_A, DIGEST_B, HASHES, TIERS, TOKENS, Controller, report, token_of


def test_lookup_by_tokens_and_by_hashes(fleet: Controller) -> None:
    for prompt in ({"tokens": TOKENS}, {"hashes": HASHES}):
        view = fleet["reader"].lookup(Lookup(namespace=DIGEST_A, **prompt))
        assert view.pages == 8
        assert [(one.instance, one.tokens, one.devices) for one in view.matches] == [
            ("one", 128, {"cpu": 8}),
            ("two", 48, {"cpu": 3}),
        ]
    salted = fleet["reader"].lookup(Lookup(namespace=DIGEST_A, tokens=TOKENS, cache_salt="other"))
    assert salted.matches == []
    assert {one.name for one in fleet["reader"].instances()} == {"one", "two"}


def test_a_tenant_sees_its_own_and_cannot_tell_anothers_from_nothing(fleet: Controller) -> None:
    assert [one.digest for one in fleet["team-b"].namespaces()] == [DIGEST_B]
    assert fleet["team-b"].lookup(Lookup(namespace=DIGEST_B, hashes=tuple(HASHES))).matches
    answers = [
        fleet.request("POST", "lookup", "team-b", json={"namespace": digest, "hashes": HASHES})
        for digest in (DIGEST_A, "f" * 32)
    ]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].json()["detail"].replace(DIGEST_A, "") == answers[1].json()["detail"].replace(
        "f" * 32, ""
    )


def test_an_operation_goes_stage_by_stage_and_its_orders_survive_lost_answers(fleet: Controller) -> None:
    wish = MoveWish(namespace=DIGEST_A, hashes=tuple(HASHES), source="one", target="two")
    operation = fleet["operator"].move(wish, key="mine")
    assert fleet["operator"].move(wish, key="mine").id == operation.id
    for _ in range(2):  # the first answer is lost, so the agent asks again
        (copy,) = fleet.report(report("one", sequence=1)).commands
    assert (copy.doing, copy.source, copy.target, copy.hashes) == ("copy", "disk", "remote", HASHES)
    assert fleet.report(report("two", sequence=1)).commands == []
    fleet.report(report("two", sequence=2, progress=[Progress(copy.id, "done", 2, 2)]))  # not its command
    assert fleet["reader"].operation(operation.id).done == 0
    assert (
        fleet.report(report("one", sequence=2, progress=[Progress(copy.id, "running", 1, 2)])).commands == []
    )
    fleet.report(report("one", sequence=3, progress=[Progress(copy.id, "done", 2, 2)]))
    (fetch,) = fleet.report(report("two", sequence=3)).commands
    assert fetch.doing == "prefetch"
    fleet.report(report("two", sequence=4, progress=[Progress(fetch.id, "failed", 3, 8, "3 of 8 pages")]))
    view = fleet["team-a"].operation(operation.id)
    assert (view.state, view.why) == ("failed", "3 of 8 pages")
    assert fleet.report(report("one", sequence=4)).commands == []  # so nothing is cleared at the source
    with pytest.raises(ControlError, match="no operation"):
        fleet["team-b"].operation(operation.id)


def test_a_cancelled_operation_stops_what_runs_and_begins_nothing_more(fleet: Controller) -> None:
    wish = MoveWish(namespace=DIGEST_A, hashes=tuple(HASHES), source="one", target="two", keep=True)
    operation = fleet["operator"].move(wish)
    (copy,) = fleet.report(report("one", sequence=1)).commands
    fleet.report(report("one", sequence=2, progress=[Progress(copy.id, "running")]))
    fleet["operator"].cancel(operation.id)
    (stop,) = fleet.report(report("one", sequence=3)).commands
    assert (stop.id, stop.cancelled) == (copy.id, True)
    fleet.report(report("one", sequence=4, progress=[Progress(copy.id, "cancelled")]))
    assert fleet["reader"].operation(operation.id).state == "cancelled"
    assert fleet.report(report("two", sequence=1)).commands == []


def test_an_operation_of_an_instance_that_goes_fails(fleet: Controller) -> None:
    wish = PrefetchWish(namespace=DIGEST_A, hashes=tuple(HASHES), instance="one")
    operation = fleet["operator"].prefetch(wish)
    fleet.desk.registry.forget("one")
    fleet.desk.tend()
    assert fleet["reader"].operation(operation.id).why == "one has gone"


def test_pins_have_owners_end_and_are_set_again_after_a_restart(fleet: Controller) -> None:
    wish = PinWish(namespace=DIGEST_A, hashes=tuple(HASHES), seconds=60, instances=("one",))
    pin = fleet["operator"].pin(wish)
    shorter = fleet["other-operator"].pin(wish.model_copy(update={"hashes": tuple(HASHES[:2])}))
    orders = fleet.report(report("one", sequence=1)).commands
    assert [(one.doing, len(one.hashes)) for one in orders] == [("pin", 8), ("pin", 2)]
    with pytest.raises(ControlError, match="operator's"):
        fleet["other-operator"].unpin(pin.id)
    done = [Progress(one.id, "done", 8, 8) for one in orders]
    again = fleet.report(Report("one", 2, 0, tiers=TIERS, progress=done)).commands
    assert [(one.doing, len(one.hashes)) for one in again] == [("pin", 8)]
    fleet["operator"].unpin(pin.id)
    (unpin,) = fleet.report(Report("one", 2, 1, progress=[Progress(again[0].id, "done")])).commands
    assert (unpin.doing, unpin.hashes) == ("unpin", HASHES[2:])  # the other pin holds the first two
    assert [one.id for one in fleet["reader"].pins()] == [shorter.id]
    fleet["admin"].unpin(shorter.id)
    assert fleet["reader"].pins() == []


def test_a_tenant_is_cleared_on_every_instance(fleet: Controller) -> None:
    fleet["admin"].clear(ClearWish(tenant="team-a"))
    for name in ("one", "two"):
        (clear,) = fleet.report(report(name, sequence=1)).commands
        assert (clear.doing, clear.namespace, clear.hashes) == ("clear", DIGEST_A, [])
    fleet["team-a"].clear(ClearWish(prompt=Prompt(namespace=DIGEST_A, tokens=TOKENS), instance="two"))
    assert fleet.report(report("two", sequence=2)).commands[-1].hashes == HASHES


def test_a_drained_instance_is_marked_and_copies_what_it_has(fleet: Controller) -> None:
    fleet["admin"].drain("one")
    (copy,) = fleet.report(report("one", sequence=1)).commands
    assert (copy.doing, copy.namespace, copy.target) == ("copy", "", "remote")
    matches = fleet["reader"].lookup(Lookup(namespace=DIGEST_A, hashes=tuple(HASHES))).matches
    assert [one.draining for one in matches] == [True, False]


def test_orders_and_refusals_are_in_the_audit_log(fleet: Controller, caplog) -> None:
    caplog.set_level(logging.INFO, "sgkv.control.audit")
    fleet["admin"].clear(ClearWish(namespace=DIGEST_A))
    fleet.request("POST", "clear", "reader", json={"namespace": DIGEST_A})
    fleet.request("GET", "pins", None)
    fleet["reader"].pins()
    lines = [json.loads(one.message) for one in caplog.records if one.name == "sgkv.control.audit"]
    assert [(one["who"], one["path"], one["status"]) for one in lines] == [
        ("admin", "/v1/clear", 202),
        ("reader", "/v1/clear", 403),
        (None, "/v1/pins", 401),
    ]
    assert lines[0]["tenants"] == ["team-a"]
    assert not [name for name in ("admin", "reader") if token_of(name) in caplog.text]


def test_without_a_controller_the_client_says_so() -> None:
    with (
        ControlClient("http://127.0.0.1:1", "a token", timeout=1) as client,
        pytest.raises(ControlError) as said,
    ):
        client.instances()
    assert said.value.status == 0
