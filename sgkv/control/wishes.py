"""From what a caller wants to commands for stores; refuses what the caller may not, or nobody can do."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import HTTPException

from sgkv.control.access import Caller, Role
from sgkv.control.desk import Desk
from sgkv.control.models import ClearWish, CompressWish, MoveWish, PinWish, PrefetchWish, Prompt
from sgkv.control.operations import Operation, Step, command
from sgkv.control.pins import Pin
from sgkv.control.places import Device
from sgkv.control.wire import NamespaceFacts, Report
from sgkv.keys import hash_pages, namespace_seed


class Wishes:
    """Every method raises HTTPException before anything is done, or does all of it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def namespace(self, digest: str, caller: Caller) -> NamespaceFacts:
        """The same answer for what does not exist and for what is another tenant's."""
        facts = self._desk.namespaces.get(digest)
        if facts is None or not caller.covers(facts.tenant):
            raise HTTPException(404, f"no store has told of a namespace {digest} that this token speaks for")
        return facts

    def hashes(self, prompt: Prompt, caller: Caller) -> list[str]:
        """Of every full page."""
        if prompt.hashes:
            return list(prompt.hashes)
        facts = self.namespace(prompt.namespace, caller)
        seed = namespace_seed(prompt.extra_key, prompt.cache_salt)
        hashes = hash_pages(prompt.tokens, facts.page_tokens, seed)
        if not hashes:
            raise HTTPException(422, f"a page is {facts.page_tokens} tokens: these make none")
        return hashes

    def operation(self, id_: str, caller: Caller) -> Operation:
        operation = self._desk.operations.get(id_)
        if operation is None or not self.sees(caller, operation):
            raise HTTPException(404, f"there is no operation {id_}, or not any more")
        return operation

    def sees(self, caller: Caller, operation: Operation) -> bool:
        """Whether all that it is about is the caller's."""
        if caller.tenants is None:
            return True
        return bool(operation.tenants) and operation.tenants <= caller.tenants

    def pin(self, wish: PinWish, caller: Caller) -> tuple[Pin, Operation]:
        facts, hashes = self.namespace(wish.namespace, caller), self.hashes(wish, caller)
        for name in wish.instances:
            self._instance(name)
        instances = wish.instances or [match.instance for match in self._desk.lookup(facts, hashes, 1024)]
        if not instances:
            raise HTTPException(409, "nobody has the first page of it: there is nothing to pin")
        pin = self._desk.pins.make(
            caller.name, facts.tenant, facts.digest, hashes, frozenset(instances), wish.seconds
        )
        return pin, self._desk.pin(pin)

    def unpin(self, id_: str, caller: Caller) -> Operation:
        pin = self._desk.pins.get(id_)
        if pin is None or not caller.covers(pin.tenant):
            raise HTTPException(404, f"there is no pin {id_}, or not any more")
        if pin.owner != caller.name and not caller.may(Role.ADMIN):
            raise HTTPException(403, f"the pin is {pin.owner}'s: an admin may end it")
        return self._desk.unpin(pin)

    def prefetch(self, wish: PrefetchWish, caller: Caller, key: str) -> Operation:
        facts, hashes = self.namespace(wish.namespace, caller), self.hashes(wish, caller)
        self._instance(wish.instance)
        step = Step(wish.instance, command("prefetch", namespace=facts.digest, hashes=hashes))
        return self._start("prefetch", caller, {facts.tenant}, [[step]], key)

    def move(self, wish: MoveWish, caller: Caller, key: str) -> Operation:
        """To the shared tier, from there into the target's memory; only then away from the source."""
        facts, hashes = self.namespace(wish.namespace, caller), self.hashes(wish, caller)
        for name in (wish.source, wish.target):
            self._instance(name)
            self._require_shared(name)
        if wish.source == wish.target:
            raise HTTPException(422, "source and target are the same instance: name two, or prefetch")
        prompt = {"namespace": facts.digest, "hashes": hashes}
        copy = command("copy", source=Device.DISK, target=Device.REMOTE, **prompt)
        stages = [[Step(wish.source, copy)], [Step(wish.target, command("prefetch", **prompt))]]
        if not wish.keep:
            stages += [[Step(wish.source, command("clear", source=one, **prompt))] for one in _LOCAL]
        return self._start("move", caller, {facts.tenant}, stages, key)

    def compress(self, wish: CompressWish, caller: Caller, key: str) -> Operation:
        facts = self.namespace(wish.namespace, caller)
        whole = not wish.tokens and not wish.hashes
        if whole and not caller.may(Role.ADMIN):
            raise HTTPException(403, "to compress a whole namespace needs a token whose role is admin")
        prompt = {"namespace": wish.namespace, "tokens": wish.tokens, "hashes": wish.hashes}
        hashes = [] if whole else self.hashes(Prompt.model_validate(prompt), caller)
        self._instance(wish.instance)
        method = {"none": "", "lz4": "lz4", "zstd": f"zstd:{wish.level}"}[wish.method]
        order = command(
            "recode", namespace=facts.digest, hashes=hashes, source=Device(wish.device), method=method
        )
        return self._start("compress", caller, {facts.tenant}, [[Step(wish.instance, order)]], key)

    def clear(self, wish: ClearWish, caller: Caller, key: str) -> Operation:
        if wish.prompt is None and not caller.may(Role.ADMIN):
            raise HTTPException(403, "to clear a namespace or a tenant needs a token whose role is admin")
        hashes = self.hashes(wish.prompt, caller) if wish.prompt else []
        cleared = self._cleared(wish, caller)
        if wish.instance is not None:
            self._instance(wish.instance)
        names = [wish.instance] if wish.instance else sorted(self._desk.registry.instances)
        steps = [
            Step(name, command("clear", namespace=facts.digest, hashes=hashes))
            for name in names
            for facts in cleared
        ]
        return self._start("clear", caller, {facts.tenant for facts in cleared}, [steps], key)

    def drain(self, name: str, caller: Caller, key: str) -> Operation:
        if caller.tenants is not None:
            raise HTTPException(403, "an instance is of all tenants: this needs a token that speaks for all")
        self._instance(name)
        self._desk.drain(name)
        shared = Device.REMOTE in self._desk.tiers.get(name, {}).values()
        copy = command("copy", namespace="", source=Device.DISK, target=Device.REMOTE)
        return self._start("drain", caller, set(), [[Step(name, copy)]] if shared else [], key)

    def undrain(self, name: str, caller: Caller) -> None:
        if caller.tenants is not None:
            raise HTTPException(403, "an instance is of all tenants: this needs a token that speaks for all")
        if name not in self._desk.registry.draining:
            raise HTTPException(404, f"{name!r} is not being drained")
        self._desk.undrain(name)

    def require_agent(self, caller: Caller, report: Report) -> None:
        """Agents report, of their tenants' namespaces, and nobody else does."""
        if caller.role is not None:
            raise HTTPException(403, "reports need a token whose role is agent")
        told = {facts.digest: facts.tenant for facts in report.namespaces}
        for digest, tenant in told.items():
            known = self._desk.namespaces.get(digest)
            if not caller.covers(tenant) or (known and known.tenant != tenant):
                raise HTTPException(403, f"this token does not speak for the tenant of {digest}")
        if caller.tenants is None:
            return
        for change in report.changes:
            known = self._desk.namespaces.get(change.namespace)
            if not caller.covers(known.tenant if known else told.get(change.namespace, "")):
                raise HTTPException(403, f"this token does not speak for the tenant of {change.namespace}")

    def _cleared(self, wish: ClearWish, caller: Caller) -> Sequence[NamespaceFacts]:
        if wish.tenant is None:
            digest = wish.prompt.namespace if wish.prompt else wish.namespace
            return [self.namespace(digest or "", caller)]
        found = [facts for facts in self._desk.namespaces.values() if facts.tenant == wish.tenant]
        if not found or not caller.covers(wish.tenant):
            raise HTTPException(404, f"no store has told of a tenant {wish.tenant} of this token")
        return found

    def _instance(self, name: str) -> None:
        if name not in self._desk.registry.instances:
            raise HTTPException(404, f"no instance {name} reports")

    def _require_shared(self, name: str) -> None:
        if Device.REMOTE not in self._desk.tiers.get(name, {}).values():
            raise HTTPException(409, f"{name} has no tier that others reach too, over which KV could move")

    def _start(
        self, what: str, caller: Caller, tenants: set[str], stages: list[list[Step]], key: str
    ) -> Operation:
        own_key = f"{caller.name}/{what}/{key}" if key else ""
        return self._desk.operations.start(what, frozenset(tenants), stages, own_key)


_LOCAL = (Device.CPU, Device.DISK)
