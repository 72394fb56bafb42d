"""The bucket's own housekeeping, for an operator to set."""

from __future__ import annotations

import math

_DAY = 86_400.0
_LEFTOVERS_DAYS = 1


def lifecycle_rules(prefix: str, ttl: float | None) -> dict[str, object]:
    """A lifecycle configuration as S3 takes it, directory buckets included.

    Objects under `prefix` expire after `ttl` seconds, in whole days and never earlier; unfinished
    multipart uploads, which sgkv does not make, after a day. Filters are by prefix only: directory
    buckets know no others but size.
    """
    rule: dict[str, object] = {
        "ID": f"sgkv {prefix or 'all'}",
        "Status": "Enabled",
        "Filter": {"Prefix": prefix},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": _LEFTOVERS_DAYS},
    }
    if ttl is not None:
        rule["Expiration"] = {"Days": max(1, math.ceil(ttl / _DAY))}
    return {"Rules": [rule]}
