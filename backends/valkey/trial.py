"""Finding out what servers are like and whether a blob can be kept there, for people who ask."""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.valkey.backend import ValkeyBackend
from sgkv.backends.valkey.dialling import Dialler
from sgkv.backends.valkey.figures import Look, look
from sgkv.backends.valkey.options import ValkeyOptions
from sgkv.backends.valkey.topology import Alone, Slots, Topology

_SECONDS = 5.0
_BLOB = b"sgkv was here"


def examine(options: ValkeyOptions, capacity: int | None) -> Look:
    """What the servers say of themselves. Raises ConnectionError where one does not answer."""
    control = Dialler(options).control
    topology: Topology = Alone(options.address)
    if options.cluster:
        topology = Slots(options.address, control, lambda: None, patience=0.0)
    topology.load()
    return look(topology.servers(), control, options, capacity)


def keep_one(options: ValkeyOptions) -> Status:
    """Put a small blob, get it and delete it; the first status that is not OK."""
    key, into = f".trial/c/{uuid4().hex}", bytearray(len(_BLOB))
    with closing(ValkeyBackend(options)) as backend:
        status = backend.put([PutItem(key, [memoryview(_BLOB)])], Deadline(_SECONDS))[0]
        if status is Status.OK:
            status = backend.get([GetItem(key, [Part(0, memoryview(into))])], Deadline(_SECONDS))[0]
        if status is Status.OK and (into != _BLOB or backend.delete([key]) != [True]):
            status = Status.ERROR
    return status
