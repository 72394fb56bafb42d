"""From the configuration of a valkey tier to what its backend wants."""

from __future__ import annotations

from sgkv.backends.valkey.options import ValkeyOptions
from sgkv.config import ValkeyTier


def valkey_options(tier: ValkeyTier) -> ValkeyOptions:
    """The same settings, without pydantic. Raises OSError for a password that cannot be read."""
    return ValkeyOptions(
        address=tier.address,
        cluster=tier.cluster,
        database=tier.database,
        prefix=tier.prefix,
        username=tier.username,
        password=_password(tier),
        tls=tier.tls,
        verify=str(tier.tls_ca) if tier.tls_ca else tier.tls_verify,
        certificate=str(tier.tls_cert) if tier.tls_cert else None,
        private_key=str(tier.tls_key) if tier.tls_key else None,
        connections=tier.connections,
        connect_timeout=tier.connect_timeout,
        read_timeout=tier.read_timeout,
        watch_seconds=tier.watch_every,
        list_seconds=tier.list_every,
    )


def _password(tier: ValkeyTier) -> str | None:
    if tier.password_file is not None:
        try:
            return tier.password_file.read_text().removesuffix("\n")
        except OSError as error:
            raise OSError(f"{tier.name}: password_file cannot be read: {error}") from error
    return None if tier.password is None else tier.password.get_secret_value()
