"""From a configuration to the rules of a daemon."""

from __future__ import annotations

from pydantic import SecretStr

from sgkv.config import Config
from sgkv.node.access import Access, Tenant
from sgkv.node.service import Rules


def rules_of(config: Config) -> Rules:
    """What a running daemon takes over from its file when it is told to (SIGHUP)."""
    node = config.node
    tenants = {name: Tenant(shown(one.token), one.quota) for name, one in node.tenants.items()}
    access = Access(frozenset(node.users), shown(node.token), tenants)
    return Rules(access, node.namespace_quota, node.connections)


def shown(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None
