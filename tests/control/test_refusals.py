"""Who and what the API refuses: a clear 4xx, and nothing is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx
import msgspec
import pytest

from sgkv.control.access import Tokens
from sgkv.control.places import Device
from sgkv.control.serving import Listening
from sgkv.control.wire import Change, Report
from tests.control.conftest import (
    DIGEST_A,
    HASHES,
    LIMITS,
    PAGE,
    Controller,
    came,
    facts,
    populated,
    report,
    serving,
)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Controller]:
    """One for all of them, for nothing that they ask is done."""
    with serving() as controller:
        yield populated(controller)


PROMPT = {"namespace": DIGEST_A, "hashes": HASHES}
ORDERS = [
    ("POST", "pins", {**PROMPT, "seconds": 60}, "operate"),
    ("POST", "prefetch", {**PROMPT, "instance": "one"}, "operate"),
    ("POST", "move", {**PROMPT, "source": "one", "target": "two"}, "operate"),
    ("POST", "compress", {**PROMPT, "instance": "one"}, "operate"),
    ("POST", "compress", {"namespace": DIGEST_A, "instance": "one"}, "admin"),
    ("POST", "clear", {"prompt": PROMPT}, "operate"),
    ("POST", "clear", {"namespace": DIGEST_A}, "admin"),
    ("POST", "clear", {"tenant": "team-a"}, "admin"),
    ("POST", "instances/one/drain", None, "admin"),
]
CALLS = [
    *ORDERS,
    ("POST", "lookup", PROMPT, "read"),
    *(("GET", path, None, "read") for path in ("instances", "namespaces", "prefixes", "pins", "operations")),
]


def untouched(controller: Controller) -> None:
    assert list(controller.desk.operations) == []
    assert list(controller.desk.pins) == []
    assert not any(one.draining for one in controller.desk.registry.instances.values())


@pytest.mark.parametrize(("method", "path", "body", "role"), CALLS)
def test_without_the_right_token_nothing_is_done(fleet: Controller, method, path, body, role) -> None:
    assert fleet.request(method, path, None, json=body).status_code == 401
    wrong = {"authorization": "Bearer of no token at all"}
    assert fleet.request(method, path, None, json=body, headers=wrong).status_code == 401
    assert fleet.request(method, path, "agent", json=body).status_code == 403
    if role != "read":
        assert fleet.request(method, path, "reader", json=body).status_code == 403
    if role == "admin":
        assert fleet.request(method, path, "operator", json=body).status_code == 403
    if method == "POST":
        assert fleet.request(method, path, "team-b", json=body).status_code in (403, 404)
    untouched(fleet)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("lookup", {"namespace": DIGEST_A}),
        ("lookup", {**PROMPT, "tokens": [1]}),
        ("lookup", {**PROMPT, "surprise": 1}),
        ("lookup", {"namespace": "A" * 32, "hashes": HASHES}),
        ("lookup", {"namespace": DIGEST_A, "hashes": ["zz"]}),
        ("lookup", {"namespace": DIGEST_A, "tokens": ["1"]}),
        ("lookup", {"namespace": DIGEST_A, "tokens": [-1] * PAGE}),
        ("lookup", {"namespace": DIGEST_A, "tokens": [1.5] * PAGE}),
        ("lookup", {"namespace": DIGEST_A, "tokens": [1] * (PAGE - 1)}),
        ("lookup", [1, 2]),
        ("pins", {**PROMPT, "seconds": -1}),
        ("pins", {**PROMPT, "seconds": 1e12}),
        ("clear", {}),
        ("clear", {"tenant": "team-a", "namespace": DIGEST_A}),
        ("move", {**PROMPT, "source": "one", "target": "one"}),
        ("prefetch", {**PROMPT, "instance": 7}),
    ],
)
def test_what_is_not_understood_is_refused(fleet: Controller, path: str, body: object) -> None:
    assert fleet.request("POST", path, json=body).status_code == 422
    untouched(fleet)


def test_who_is_not_there_gets_no_orders(fleet: Controller) -> None:
    orders = [
        ("pins", {**PROMPT, "seconds": 60, "instances": ["nobody"]}),
        ("prefetch", {**PROMPT, "instance": "nobody"}),
        ("clear", {"prompt": PROMPT, "instance": "nobody"}),
        ("instances/nobody/drain", None),
        ("operations/nothing/cancel", None),
    ]
    assert [fleet.request("POST", path, json=body).status_code for path, body in orders] == [404] * 5
    fleet.report(report("two", sequence=1, tiers={"memory": Device.CPU}))
    alone = fleet.request("POST", "move", json={**PROMPT, "source": "one", "target": "two"})
    assert alone.status_code == 409
    untouched(fleet)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_body_is_refused(fleet: Controller, chunked: bool) -> None:
    huge = b"[" + b"1," * LIMITS.body_bytes
    content = (huge[at : at + 65_536] for at in range(0, len(huge), 65_536)) if chunked else huge
    try:
        assert fleet.request("POST", "lookup", content=content).status_code == 413
    except (httpx.WriteError, httpx.RemoteProtocolError):
        assert chunked  # it hung up on a client that went on sending
    assert fleet["reader"].instances()


@pytest.mark.parametrize("body", [b"", b"{", b"\xff" * 100, b'{"a":' * 5000])
def test_garbage_is_refused(fleet: Controller, body: bytes) -> None:
    for path, name in (("lookup", "reader"), ("report", "agent")):
        answer = fleet.request("POST", path, name, content=body, headers={"content-type": "application/json"})
        assert 400 <= answer.status_code < 500
    untouched(fleet)


def test_only_agents_report_and_only_of_their_tenants(fleet: Controller) -> None:
    def status(name: str, told: Report) -> int:
        return fleet.request("POST", "report", name, content=msgspec.msgpack.encode(told)).status_code

    hashes = fleet.desk.registry.hashes
    assert status("admin", report("three")) == 403
    assert status("agent-b", report("three", changes=[came(DIGEST_A, 8)])) == 403
    assert status("agent-b", report("three", namespaces=[facts(DIGEST_A, "team-b")])) == 403
    assert status("agent-b", report("three", changes=[came("c" * 32, 8)])) == 403
    assert status("agent", report("three", changes=[Change(DIGEST_A, "p", Device.CPU, True, b"odd")])) == 422
    assert "three" not in fleet.desk.registry.instances
    assert fleet.desk.registry.hashes == hashes
    own = report("three", changes=[came("d" * 32, 8)], namespaces=[facts("d" * 32, "team-b")])
    assert status("agent-b", own) == 200


def test_one_token_cannot_ask_too_often() -> None:
    with serving(replace(LIMITS, requests_a_second=0.5)) as controller:
        answers = [controller.request("GET", "pins", "reader") for _ in range(3)]
        late = [answer for answer in answers if answer.status_code == 429]
        assert int(late[0].headers["retry-after"]) >= 1
        assert controller.request("GET", "pins", "operator").status_code == 200


def test_a_file_of_tokens_and_an_address_are_checked_before_anything_listens(tmp_path) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text("- {name: me, token: long enough to be one, role: admin}\n")
    path.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        Tokens.load(path)
    path.chmod(0o600)
    assert Tokens.load(path).caller("Bearer long enough to be one").name == "me"
    for wrong in ("[]", "- {name: me, token: short, role: admin}", "- {name: me, role: king}", "{", "7"):
        path.write_text(wrong)
        with pytest.raises(ValueError):
            Tokens.load(path)
    with pytest.raises(ValueError, match="not loopback"):
        Listening(host="0.0.0.0")
