"""The controller: registry, pins and operations together, and what a report or a wish does to them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sgkv.control.heat import Heat
from sgkv.control.keeping import Keeper
from sgkv.control.operations import Operation, Operations, Step, command
from sgkv.control.pins import Pin, Pins
from sgkv.control.places import Device
from sgkv.control.registry import Match, Registry, Shelf
from sgkv.control.table import HASH_BYTES
from sgkv.control.wire import Ack, NamespaceFacts, Report

_MOST_NAMESPACES = 4096


class Desk:
    """Of the event loop alone. No call does I/O."""

    def __init__(self, registry: Registry, keeper: Keeper | None = None) -> None:
        """With what a `keeper` has, and has it told of what changes. Raises KeepingError."""
        self.registry = registry
        self.operations = Operations()
        self.pins = Pins(keeper=keeper)
        self._keeper = keeper
        self.namespaces: dict[str, NamespaceFacts] = {}
        self.tiers: dict[str, dict[str, Device]] = {}
        """By instance: its tiers, and which device each is."""
        self.latest: dict[str, Report] = {}
        """Of each instance, for its counts alone."""
        self.heat = Heat()
        if keeper is not None:
            kept = keeper.load()
            registry.draining.update(kept.draining)
            for pin in kept.pins:
                self.pins.keep(pin)

    def drain(self, instance: str) -> None:
        """Nothing new is to go there, also when it or the controller begins anew."""
        self.registry.draining.add(instance)
        self.registry.instances[instance].draining = True
        if self._keeper is not None:
            self._keeper.keep_draining(instance)

    def undrain(self, instance: str) -> None:
        """It is to be used again. Raises KeyError where it was not draining."""
        self.registry.draining.remove(instance)
        if instance in self.registry.instances:
            self.registry.instances[instance].draining = False
        if self._keeper is not None:
            self._keeper.drop_draining(instance)

    def receive(self, report: Report) -> Ack:
        """Raises ValueError for what no agent of ours sends; nothing is taken in then."""
        changes = [(change, change.split()) for change in report.changes]
        before = self.registry.instances.get(report.instance)
        verdict = self.registry.receive(report.instance, report.epoch, report.sequence)
        if verdict == "outdated":
            return Ack(verdict)
        if verdict == "apply":
            self._learn(report)
            for change, hashes in changes:
                shelf = Shelf(change.namespace, change.kind)
                move = self.registry.batched_admit if change.came else self.registry.batched_evict
                move(shelf, hashes, report.instance, change.device)
            if report.complete:
                self.registry.complete(report.instance)
            if before is None or before.epoch != report.epoch:
                self._pin_again(report.instance)
        self.operations.note(report.instance, report.progress)
        return Ack(verdict, self.operations.orders(report.instance))

    def lookup(self, facts: NamespaceFacts, hashes: Iterable[str], limit: int) -> list[Match]:
        """`hashes` of the pages of a prompt from its start, 64 hex digits each."""
        names = list(hashes)
        short = [bytes.fromhex(one[: 2 * HASH_BYTES]) for one in names]
        found = self.registry.batched_p2p_lookup(facts.digest, short, facts.pages_per_chunk, limit)
        self.heat.note(facts.digest, names, found[0].pages if found else 0)
        return found

    def pin(self, pin: Pin) -> Operation:
        """Have the instances of a pin keep its pages."""
        hashes = list(pin.hashes)
        steps = [
            Step(instance, command("pin", namespace=pin.namespace, hashes=hashes))
            for instance in sorted(pin.instances)
        ]
        operation = self.operations.start("pin", frozenset({pin.tenant}), [steps])
        self.pins.keep(pin)
        return operation

    def unpin(self, pin: Pin) -> Operation:
        steps = [
            Step(instance, command("unpin", namespace=pin.namespace, hashes=hashes))
            for instance, hashes in self.pins.alone(pin).items()
            if instance in self.registry.instances
        ]
        operation = self.operations.start("unpin", frozenset({pin.tenant}), [steps])
        self.pins.drop(pin)
        return operation

    def tend(self) -> None:
        """What time brings: silent instances go, pins end, records of the gone are swept up."""
        self.registry.expire()
        present = self.registry.instances.__contains__
        self.tiers = {name: tiers for name, tiers in self.tiers.items() if present(name)}
        self.latest = {name: latest for name, latest in self.latest.items() if present(name)}
        self.operations.abandon(present)
        for pin in self.pins.expired():
            self.unpin(pin)
        self.registry.sweep()

    def _pin_again(self, instance: str) -> None:
        """An instance that begins anew has forgotten its pins: they live in its process."""
        by_namespace: dict[tuple[str, str], dict[str, None]] = {}
        for pin in self.pins.on(instance):
            by_namespace.setdefault((pin.tenant, pin.namespace), {}).update(dict.fromkeys(pin.hashes))
        for (tenant, namespace), hashes in by_namespace.items():
            step = Step(instance, command("pin", namespace=namespace, hashes=list(hashes)))
            self.operations.start("pin", frozenset({tenant}), [[step]])

    def _learn(self, report: Report) -> None:
        self.tiers[report.instance] = report.tiers
        self.latest[report.instance] = msgspec.structs.replace(report, changes=[], namespaces=[], progress=[])
        for facts in report.namespaces:
            if len(self.namespaces) < _MOST_NAMESPACES:
                self.namespaces.setdefault(facts.digest, facts)
