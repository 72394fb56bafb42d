"""Finding out why a pool does not work, one question after the other."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.mooncake.admin import Admin
from sgkv.backends.mooncake.backend import MooncakeBackend
from sgkv.backends.mooncake.library import DISTRIBUTIONS, LibraryMissingError, load
from sgkv.backends.mooncake.options import MooncakeOptions
from sgkv.backends.mooncake.reachable import why_not_reachable

_SECONDS = 10.0
_BYTES = 64 << 10
_SEGMENT = 16 << 20


class Finding(NamedTuple):
    """One answer. `ok` False is why a tier cannot work; None is what should be known."""

    ok: bool | None
    text: str


def diagnose(options: MooncakeOptions) -> Iterator[Finding]:
    """Ask until an answer makes the next question pointless. Opens the pool, and stores one small blob."""
    for step in (_library, _master, _nodes, _tenants, _round_trip):
        findings = list(step(options))
        yield from findings
        if any(finding.ok is False for finding in findings):
            return


def _library(options: MooncakeOptions) -> Iterator[Finding]:
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if len(found) > 1:
        yield Finding(
            None,
            f"{', '.join(found)} are all installed, and overwrite each other: uninstall all, install one",
        )
    try:
        load(options)
    except LibraryMissingError as error:
        yield Finding(False, str(error))
        return
    versions = ", ".join(f"{name} {version}" for name, version in found.items())
    yield Finding(True, f"the library loads ({versions or 'not from a wheel'})")


def _master(options: MooncakeOptions) -> Iterator[Finding]:
    reason = why_not_reachable(options)
    if reason is not None:
        yield Finding(False, f"no master: {reason}. Is mooncake_master running, and bound to that address?")
    else:
        yield Finding(True, f"{options.standalone or options.master} answers")


def _nodes(options: MooncakeOptions) -> Iterator[Finding]:
    try:
        segments = Admin(options.admin_url).segments()
    except (OSError, ValueError) as error:
        yield Finding(
            None,
            f"{options.admin_url} does not tell about nodes ({error}): name the master's `admin` address",
        )
        return
    if not segments and not options.segment_bytes:
        yield Finding(False, "no node gives memory to the pool: start storage nodes")
    for segment in segments:
        fine = True if segment["status"] == "OK" else None
        facts = ", ".join(str(segment[name]) for name in ("size_human", "protocol", "status"))
        yield Finding(fine, f"node {segment['segment_name']}: {facts}")
    if options.protocol == "rdma":
        yield from _transport([segment["protocol"] for segment in segments])


def _transport(protocols: list[str]) -> Iterator[Finding]:
    """RDMA that is not there becomes tcp without a word."""
    if not any(Path("/sys/class/infiniband").glob("*")):
        yield Finding(None, "protocol is rdma, but this machine has no RDMA device: the library will use tcp")
    if "tcp" in protocols:
        yield Finding(None, "protocol is rdma, but there are nodes that use tcp")


def _tenants(options: MooncakeOptions) -> Iterator[Finding]:
    if options.tenant == "default":
        return
    try:
        isolated = Admin(options.admin_url).tenants_isolated()
    except OSError as error:
        yield Finding(None, f"whether tenants are isolated cannot be seen: {error}")
        return
    if isolated:
        yield Finding(True, "the master keeps tenants apart")
    else:
        yield Finding(
            False,
            f"pool_tenant is {options.tenant!r}, but the master isolates no tenants: start it with "
            "-enable_multi_tenants and -tenant_quota_connector_uri, or leave pool_tenant out",
        )


def _own_segment(options: MooncakeOptions) -> int:
    """A little memory for a pool that only its servers will give some; else none, for it goes with us."""
    try:
        empty = not Admin(options.admin_url).segments()
    except (OSError, ValueError):
        empty = False
    return min(options.segment_bytes, _SEGMENT) if empty else 0


def _round_trip(options: MooncakeOptions) -> Iterator[Finding]:
    key, data, into = f"doctor/{os.urandom(16).hex()}", os.urandom(_BYTES), bytearray(_BYTES)
    visitor = replace(options, connect_wait=_SECONDS, segment_bytes=_own_segment(options), ssd_path="")
    with closing(MooncakeBackend(visitor, name="doctor")) as backend:
        if not backend.connected:
            yield Finding(False, "the library could not connect; its messages are on standard error")
            return
        (put,) = backend.put([PutItem(key, [memoryview(data)])], Deadline(_SECONDS))
        (got,) = backend.get([GetItem(key, [Part(0, memoryview(into))])], Deadline(_SECONDS))
        backend.delete([key])
    if put.ok and got.ok and into == data:
        yield Finding(True, "a small blob was stored, read back and removed")
    elif put is Status.FULL:
        yield Finding(False, "the pool has no room: too small, or full of what is pinned")
    else:
        yield Finding(False, f"storing a small blob: {put.value}, reading it back: {got.value}")
