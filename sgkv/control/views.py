"""What the controller knows, as callers are told it."""

from __future__ import annotations

import time

from sgkv.control.desk import Desk
from sgkv.control.heat import HotPrefix
from sgkv.control.models import (
    InstanceView,
    MatchView,
    NamespaceView,
    OperationView,
    PinView,
    PrefixView,
)
from sgkv.control.operations import Operation
from sgkv.control.pins import Pin
from sgkv.control.registry import Instance, Match
from sgkv.control.wire import NamespaceFacts


def match_view(match: Match, page_tokens: int) -> MatchView:
    return MatchView(
        instance=match.instance,
        pages=match.pages,
        tokens=match.pages * page_tokens,
        devices=match.devices,
        draining=match.draining,
    )


def instance_view(desk: Desk, instance: Instance, *, counts: bool) -> InstanceView:
    """With `counts` also what all of its tenants together have there and missed."""
    latest = desk.latest.get(instance.name) if counts else None
    return InstanceView(
        name=instance.name,
        silent_seconds=round(time.monotonic() - instance.seen, 3),
        draining=instance.draining,
        tiers=desk.tiers.get(instance.name, {}),
        usage=latest.usage if latest else {},
        hit_pages=latest.hit_pages if latest else {},
        miss_pages=latest.miss_pages if latest else {},
    )


def prefix_view(prefix: HotPrefix, page_tokens: int) -> PrefixView:
    return PrefixView(
        namespace=prefix.namespace,
        hash=prefix.hash,
        pages=prefix.pages,
        tokens=prefix.pages * page_tokens,
        lookups=prefix.lookups,
    )


def namespace_view(facts: NamespaceFacts) -> NamespaceView:
    return NamespaceView(
        digest=facts.digest,
        tenant=facts.tenant,
        weights=facts.weights,
        pool=facts.pool,
        cell=facts.cell,
        page_tokens=facts.page_tokens,
        pages_per_chunk=facts.pages_per_chunk,
    )


def operation_view(operation: Operation) -> OperationView:
    told = operation.progress.values()
    return OperationView(
        id=operation.id,
        what=operation.what,
        state=operation.state,
        why=operation.why,
        done=sum(one.done for one in told),
        total=sum(one.total for one in told),
        began=operation.began,
    )


def pin_view(pin: Pin, operation: str | None = None) -> PinView:
    return PinView(
        id=pin.id,
        owner=pin.owner,
        tenant=pin.tenant,
        namespace=pin.namespace,
        pages=len(pin.hashes),
        instances=sorted(pin.instances),
        expires_at=pin.expires_at,
        operation=operation,
    )
