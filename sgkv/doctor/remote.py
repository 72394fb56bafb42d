"""Tiers on other machines: whether they answer, and what they allow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from sgkv.config import ResolvedConfig, ResolvedMooncake, ResolvedS3, ResolvedValkey
from sgkv.doctor.finding import Finding, note, ok, problem


def examine(config: ResolvedConfig) -> Iterator[Finding]:
    """Ask every remote tier, storing one small blob in each."""
    for tier in config.tiers:
        if isinstance(tier, ResolvedS3):
            yield from _bucket(tier)
        elif isinstance(tier, ResolvedMooncake):
            yield from _pool(tier)
        elif isinstance(tier, ResolvedValkey):
            yield from _keys(tier)


def _bucket(resolved: ResolvedS3) -> Iterator[Finding]:
    from sgkv.backends.s3 import S3Backend
    from sgkv.store.buckets import s3_options

    tier = resolved.tier
    topic = f"bucket {tier.bucket}"
    try:
        backend = S3Backend(replace(s3_options(tier), examine=False, list_seconds=None), name=tier.name)
    except (ImportError, ValueError, OSError) as error:
        yield problem(topic, f"cannot be opened: {error}")
        return
    with closing(backend):
        report = backend.examine()
    for finding in report.findings:
        said = f"{finding.what}: {finding.detail}"
        if finding.able:
            yield ok(topic, said)
        elif finding.needed:
            yield problem(topic, said, "see docs/s3.md for the permissions that a tier needs")
        else:
            yield note(topic, said)


def _pool(resolved: ResolvedMooncake) -> Iterator[Finding]:
    from sgkv.backends.mooncake.diagnosis import diagnose
    from sgkv.store.pooled import mooncake_options

    makers = {True: ok, None: note, False: problem}
    for finding in diagnose(mooncake_options(resolved.tier)):
        yield makers[finding.ok](f"pool {resolved.tier.master}", finding.text)


def _keys(resolved: ResolvedValkey) -> Iterator[Finding]:
    topic = f"server {resolved.tier.address}"
    try:
        from sgkv.backends.valkey.trial import examine, keep_one
        from sgkv.store.keyed import valkey_options

        options = valkey_options(resolved.tier)
        seen = examine(options, resolved.capacity)
    except (ImportError, OSError) as error:
        yield problem(topic, f"cannot be used: {error}")
        return
    yield from (ok(topic, line) for line in seen.descriptions)
    yield from (note(topic, line) for line in seen.doubts)
    status = keep_one(options)
    if status.ok:
        yield ok(topic, "keeps a blob")
    else:
        yield problem(topic, f"does not keep a blob: {status.value}", "see docs/valkey.md for its rights")
