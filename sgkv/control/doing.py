"""What a store does when the controller says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sgkv.backends.base import Backend
from sgkv.backends.deadline import Deadline
from sgkv.backends.wrapper import Wrapper
from sgkv.codecs.backend import CodedBackend
from sgkv.codecs.coding import Recipe
from sgkv.codecs.recoding import recode
from sgkv.control.places import Device
from sgkv.control.wire import Command
from sgkv.keys import chunk_keys, page_keys
from sgkv.prewarm.copying import copy_blobs
from sgkv.prewarm.outcomes import Outcome
from sgkv.prewarm.pace import Control
from sgkv.prewarm.planning import Limits
from sgkv.prewarm.progress import Silent
from sgkv.prewarm.running import Run
from sgkv.prewarm.selection import Selection
from sgkv.store.session import Session
from sgkv.store.span import Span
from sgkv.store.store import Store
from sgkv.store.tier import Tier

Told = Callable[[int, int], None]
"""Called with how much is done, of how much."""

_BATCH_BYTES = 16 << 20
_READ_SECONDS = 30.0


class CannotError(Exception):
    """The command cannot be followed here; the text says why."""


def device_of(tier: Tier) -> Device:
    if tier.arena is not None:
        return Device.CPU
    return Device.DISK if tier.backend.capabilities.local_index else Device.REMOTE


def do(store: Store, command: Command, control: Control, told: Told) -> None:
    """Follow one command. Raises CannotError; `control` may stop it half way."""
    if command.doing == "copy":
        _copy(store, command, control, told)
        return
    sessions = [session for session in store.sessions if session.namespace.digest == command.namespace]
    if not sessions:
        raise CannotError("no engine that uses this namespace is attached here")
    if command.doing == "clear":
        _clear(store, sessions, command)
    elif command.doing == "recode":
        _recode(store, sessions[0], command, control, told)
    elif command.doing == "prefetch":
        _prefetch(sessions[0], command, control, told)
    else:
        _pin(sessions, command, told)


def _pin(sessions: Sequence[Session], command: Command, told: Told) -> None:
    flags = [session.pin(Span(command.hashes), command.doing == "pin") for session in sessions]
    told(sum(map(any, zip(*flags, strict=True))), len(command.hashes))


def _clear(store: Store, sessions: Sequence[Session], command: Command) -> None:
    """A whole namespace at once, or the blobs of a prompt where they are now, of one device or of all."""
    if not command.hashes:
        for session in sessions:
            session.clear()
        return
    for tier in store.tiers:
        if command.source in (None, device_of(tier)):
            for session in sessions:
                group = session.arena_group if tier.arena else command.namespace
                tier.backend.delete(page_keys(group, command.hashes) + _chunks(session, command))


def _prefetch(session: Session, command: Command, control: Control, told: Told) -> None:
    """Read a prompt, which copies into memory what a slower tier has."""
    span, size = Span(command.hashes), session.layout.page_bytes
    room = memoryview(bytearray(size * max(1, _BATCH_BYTES // size)))
    pages = [[room[at : at + size]] for at in range(0, len(room), size)]
    read = 0
    for batch in span.batches(len(pages), session.pages_per_chunk):
        if control.stopped:
            return
        part = span.part(batch.start, batch.stop)
        reasons = session.get(part, pages[: len(batch)], Deadline(_READ_SECONDS))
        read += reasons.count(None)
        told(read, len(command.hashes))
    if read < len(command.hashes):
        raise CannotError(f"{read} of {len(command.hashes)} pages are in its tiers")


def _copy(store: Store, command: Command, control: Control, told: Told) -> None:
    """Verified blobs from one tier into another; those of a prompt, of a namespace, or all."""
    store.flush(_READ_SECONDS)
    source, target = _tier(store, command.source), _tier(store, command.target)
    session = next((one for one in store.sessions if one.namespace.digest == command.namespace), None)
    if command.hashes and session is None:
        raise CannotError("no engine that uses this namespace is attached here")
    keys: frozenset[str] | None = None
    if session is not None and command.hashes:
        keys = frozenset(page_keys(command.namespace, command.hashes) + _chunks(session, command))
    namespaces = frozenset({command.namespace} if command.namespace else ())
    run = Run(control, _Listening(told), workers=2)
    copy_blobs(source, target, Selection(namespaces, keys), Limits(), run)
    report = run.report("copy")
    if not control.stopped and report.exit_code:
        raise CannotError(f"{report.items(Outcome.FAILED)} blobs failed: {dict(report.outcomes)}")


def _recode(store: Store, session: Session, command: Command, control: Control, told: Told) -> None:
    """Blobs of a prompt or of a namespace, on one tier, made smaller in another way; sealed as the tier
    seals.
    """
    store.flush(_READ_SECONDS)
    coded = _coded(store, command.source)
    wanted = frozenset(page_keys(command.namespace, command.hashes) + _chunks(session, command))
    blobs = [
        blob for blob in coded.inner.scan(f"{command.namespace}/") if not command.hashes or blob.key in wanted
    ]
    done = recode(
        coded.inner,
        blobs,
        Recipe(command.method, locksmith=coded.seals_with),
        coded.opens_with,
        told=lambda so_far: told(so_far.looked_at, len(blobs)),
        stopped=lambda: control.stopped,
    )
    if done.failed or done.damaged:
        raise CannotError(f"{done.failed} blobs could not be read or written, {done.damaged} are damaged")


def _coded(store: Store, device: Device | None) -> CodedBackend:
    """The codec of the first tier of a kind, which every tier below memory has."""
    for tier in store.tiers:
        backend = tier.backend
        while device_of(tier) is device and isinstance(backend, Wrapper):
            if isinstance(backend, CodedBackend):
                return backend
            backend = backend.inner
    raise CannotError(f"there is no tier of the kind {device} that has a codec")


class _Listening(Silent):
    """Passes the progress of a copy on, in blobs."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._done = self._items = 0

    def begin(self, what: str, items: int, size: int) -> None:
        self._items = items
        self._told(0, items)

    def advance(self, size: int) -> None:
        self._done += 1
        self._told(self._done, self._items)


def _chunks(session: Session, command: Command) -> list[str]:
    last = session.pages_per_chunk - 1
    return chunk_keys(command.namespace, command.hashes[last :: session.pages_per_chunk])


def _tier(store: Store, device: Device | None) -> Backend:
    """Raises CannotError where blobs cannot be copied as they are."""
    found = [tier for tier in store.tiers if device_of(tier) is device]
    if not found:
        raise CannotError(f"there is no tier of the kind {device}")
    if device is Device.CPU:
        raise CannotError("memory holds no blobs: prefetch into it, or copy from the tier below")
    backend = found[0].backend
    if _is_coded(backend):
        raise CannotError(f"tier {found[0].name} codes its blobs: copy them with `sgkv prewarm copy`")
    return backend


def _is_coded(backend: Backend) -> bool:
    while isinstance(backend, Wrapper):
        if isinstance(backend, CodedBackend) and backend.codes:
            return True
        backend = backend.inner
    return False
