"""From the configuration of an s3 tier to what its backend wants."""

from __future__ import annotations

from sgkv.backends.s3 import S3Options
from sgkv.config import S3Tier


def s3_options(tier: S3Tier) -> S3Options:
    """The same settings, without pydantic."""
    return S3Options(
        bucket=tier.bucket,
        prefix=tier.prefix,
        region=tier.region,
        endpoint=tier.endpoint,
        addressing=tier.addressing,
        verify=str(tier.tls_ca) if tier.tls_ca else tier.tls_verify,
        profile=tier.profile,
        access_key=tier.access_key,
        secret_key=tier.secret_key.get_secret_value() if tier.secret_key else None,
        session_auth=tier.session_auth,
        plane=tier.plane,
        encryption=tier.encryption,
        kms_key=tier.kms_key,
        examine=tier.examine,
        concurrency=tier.concurrency,
        probes=tier.probes,
        connect_timeout=tier.connect_timeout,
        read_timeout=tier.read_timeout,
        attempts=tier.attempts,
        known_keys=tier.known_keys,
        present_seconds=tier.present_for,
        absent_seconds=tier.absent_for,
        list_seconds=tier.list_every,
    )
