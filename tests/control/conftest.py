"""A real controller on loopback, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import msgspec
import pytest

from sgkv.control.access import TokenEntry, Tokens
from sgkv.control.client import ControlClient
from sgkv.control.desk import Desk
from sgkv.control.gate import GateLimits
from sgkv.control.places import Device
from sgkv.control.registry import Registry
from sgkv.control.serving import Listening, in_background, make_server
from sgkv.control.wire import Ack, Change, NamespaceFacts, Report
from sgkv.keys import hash_pages

LIMITS = GateLimits(body_bytes=1 << 20, requests_a_second=500.0)
NAMES = {
    "reader": ("read", None),
    "operator": ("operate", None),
    "other-operator": ("operate", None),
    "admin": ("admin", None),
    "agent": ("agent", None),
    "team-a": ("operate", ("team-a",)),
    "team-b": ("admin", ("team-b",)),
    "agent-b": ("agent", ("team-b",)),
}


def token_of(name: str) -> str:
    return f"the secret token of {name}"


def tokens() -> Tokens:
    entries = [
        {"name": name, "token": token_of(name), "role": role, "tenants": tenants}
        for name, (role, tenants) in NAMES.items()
    ]
    return Tokens([TokenEntry.model_validate(entry) for entry in entries])


@dataclass
class Controller:
    url: str
    desk: Desk
    clients: dict[str, ControlClient] = field(default_factory=dict)

    def __getitem__(self, name: str) -> ControlClient:
        if name not in self.clients:
            self.clients[name] = ControlClient(self.url, token_of(name))
        return self.clients[name]

    def request(self, method: str, path: str, name: str | None = "admin", **kw) -> httpx.Response:
        headers = {"authorization": f"Bearer {token_of(name)}"} if name else {}
        return httpx.request(method, f"{self.url}/v1/{path}", headers=headers | kw.pop("headers", {}), **kw)

    def report(self, report: Report, name: str = "agent") -> Ack:
        answer = self.request("POST", "report", name, content=msgspec.msgpack.encode(report))
        assert answer.status_code == 200, answer.text
        return msgspec.msgpack.decode(answer.content, type=Ack)


@contextmanager
def serving(limits: GateLimits = LIMITS, stale_after: float = 60.0) -> Iterator[Controller]:
    desk = Desk(Registry(stale_after=stale_after))
    with in_background(make_server(tokens(), Listening(port=0), limits, desk)) as url:
        controller = Controller(url, desk)
        yield controller
        for client in controller.clients.values():
            client.close()


@pytest.fixture
def controller() -> Iterator[Controller]:
    with serving() as controller:
        yield controller


@pytest.fixture
def fleet(controller: Controller) -> Controller:
    return populated(controller)


PAGE, PER_CHUNK = 16, 4
DIGEST_A, DIGEST_B = "a" * 32, "b" * 32
TOKENS = tuple(range(8 * PAGE))
HASHES = hash_pages(TOKENS, PAGE)
TIERS = {"memory": Device.CPU, "disk": Device.DISK, "bucket": Device.REMOTE}


def facts(digest: str, tenant: str) -> NamespaceFacts:
    return NamespaceFacts(digest, tenant, "weights", "kv", "tp 0/1", PAGE, PER_CHUNK)


def came(digest: str, pages: int) -> Change:
    return Change(digest, "p", Device.CPU, True, b"".join(bytes.fromhex(h)[:16] for h in HASHES[:pages]))


def report(instance: str = "one", sequence: int = 0, **details) -> Report:
    return Report(instance, 1, sequence, **{"tiers": TIERS, **details})


def populated(controller: Controller) -> Controller:
    """Two instances: one has eight pages for each tenant, two has three of team-a's."""
    both = [facts(DIGEST_A, "team-a"), facts(DIGEST_B, "team-b")]
    controller.report(report("one", changes=[came(DIGEST_A, 8), came(DIGEST_B, 8)], namespaces=both))
    controller.report(report("two", changes=[came(DIGEST_A, 3)]))
    return controller
