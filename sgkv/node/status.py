"""What `sgkv node status` shows, as the daemon tells it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from sgkv import __version__

if TYPE_CHECKING:
    from sgkv.node.access import Grant
    from sgkv.node.conversation import Conversation
    from sgkv.node.service import Service


def report(service: Service, conversations: Sequence[Conversation], started: float, grant: Grant) -> bytes:
    """JSON; does no I/O. A tenant is told of itself alone, and of the tiers that all share."""
    stats = service.store.stats()
    used = service.quotas.used()
    access = service.rules.access
    facts = {
        "version": __version__,
        "pid": os.getpid(),
        "uptime_seconds": round(time.time() - started, 1),
        "connections": [_connection(one) for one in conversations if grant.tenants in (None, one.tenants)],
        "tenants": {
            name: {"cpu_bytes": used.get(name, 0), "quota_bytes": access.quota(name)}
            for name in sorted({*used, *access.tenants})
            if grant.covers(name)
        },
        "tiers": {
            name: {
                "blobs": tier.blobs,
                "used_bytes": tier.used_bytes,
                "capacity_bytes": tier.capacity_bytes,
                "leases": tier.leases,
            }
            for name, tier in stats.tiers.items()
        },
        "write_behind_bytes": stats.write_behind_bytes,
        "bounds": {**stats.bounds, **service.turns.bounds()},
        "counters": stats.counters,
    }
    return msgspec.json.encode(facts)


def _connection(one: Conversation) -> dict[str, object]:
    return {
        "pid": one.peer.pid,
        "uid": one.peer.uid,
        "software": one.software,
        "namespaces": one.sessions,
        "shared_bytes": one.shared_bytes,
        "held_blocks": one.held_blocks,
    }
