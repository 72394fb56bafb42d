"""How much of the cpu tier a tenant and a namespace may take."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from sgkv.backends.cpu import CpuBackend
from sgkv.keys import page_keys
from sgkv.node.access import Access
from sgkv.store.session import Session
from sgkv.store.span import Span

_SLACK = 16
"""Past its quota a tenant gives up a part of it, so that not every write has to look for victims."""


_MANY = 1024
"""Namespaces of a tenant after which those without pages are forgotten: updates of weights make new ones."""


class Quotas:
    """Makes room for a write within the quotas of its tenant, from that tenant's own coldest pages."""

    def __init__(self, arena: CpuBackend) -> None:
        self._arena = arena
        self._lock = threading.Lock()
        self._groups: dict[str, set[str]] = {}

    def note(self, session: Session) -> None:
        """Count what this session stores to its tenant."""
        with self._lock:
            groups = self._groups.setdefault(session.namespace.tenant, set())
            if len(groups) >= _MANY:
                groups.intersection_update([group for group in groups if self._arena.held_by([group])])
            groups.add(session.arena_group)

    def used(self) -> dict[str, int]:
        """Bytes by tenant."""
        with self._lock:
            tenants = {tenant: list(groups) for tenant, groups in self._groups.items()}
        return {tenant: self._arena.held_by(groups) for tenant, groups in tenants.items()}

    def make_room(self, session: Session, span: Span, access: Access, namespace_quota: int | None) -> bool:
        """Whether the pages of a span fit, after evicting what had to go."""
        self.note(session)  # which may have been forgotten since it was opened
        limits = list(self._limits(session, access, namespace_quota))
        return all(self._within(session, span, groups, quota) for groups, quota in limits)

    def trim(self, session: Session, access: Access, namespace_quota: int | None) -> None:
        """Give up what reads have loaded past the quotas, coldest first."""
        for groups, quota in self._limits(session, access, namespace_quota):
            over = self._arena.held_by(groups) - quota
            if over > 0:
                self._arena.shrink(groups, over + quota // _SLACK)

    def _limits(
        self, session: Session, access: Access, namespace_quota: int | None
    ) -> Iterator[tuple[Sequence[str], int]]:
        quota = access.quota(session.namespace.tenant)
        if quota is not None:
            with self._lock:
                groups = list(self._groups.get(session.namespace.tenant, ()))
            yield groups, quota
        if namespace_quota is not None:
            yield [session.arena_group], namespace_quota

    def _within(self, session: Session, span: Span, groups: Sequence[str], quota: int) -> bool:
        most = len(span.hashes) * session.layout.page_bytes
        if self._arena.held_by(groups) + most <= quota:
            return True
        there = self._arena.contains(page_keys(session.arena_group, span.hashes))
        new = there.count(False) * session.layout.page_bytes
        over = self._arena.held_by(groups) + new - quota
        if over > 0 and new <= quota:
            over -= self._arena.shrink(groups, over + quota // _SLACK)
        return over <= 0
