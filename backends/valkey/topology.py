"""Which server has a key."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from valkey.crc import VALKEY_CLUSTER_HASH_SLOTS, key_slot

from sgkv.backends.deadline import Deadline
from sgkv.backends.valkey.dialling import Control
from sgkv.backends.valkey.requests import Redirect


class Topology(ABC):
    """Any thread; no call but `load` does I/O."""

    @abstractmethod
    def known(self, deadline: Deadline | None) -> bool:
        """Whether `owner` can be asked; waits for a first `load` that is under way."""

    @abstractmethod
    def owner(self, name: bytes) -> str:
        """``HOST:PORT`` of the server that has a key, as far as is known."""

    @abstractmethod
    def servers(self) -> list[str]:
        """All that have keys of their own."""

    def moved(self, name: bytes, redirect: Redirect) -> None:
        """Take in what a server said about a key."""

    def suspect(self) -> None:
        """A server failed: its keys may be another's by now."""

    def load(self) -> None:
        """Ask anew. Raises ConnectionError where nobody can say."""


class Alone(Topology):
    """One server, or what stands for it in front of others."""

    def __init__(self, address: str) -> None:
        self._address = address

    def known(self, deadline: Deadline | None) -> bool:
        return True

    def owner(self, name: bytes) -> str:
        return self._address

    def servers(self) -> list[str]:
        return [self._address]


class Slots(Topology):
    """The map of a cluster: which primary has which hash slots ("Cluster specification", valkey.io)."""

    def __init__(self, seed: str, control: Control, ask_soon: Callable[[], object], patience: float) -> None:
        """`seed` is any node; `ask_soon` has `load` called; `patience` in seconds, for the first of them."""
        self._seed = seed
        self._control = control
        self._ask_soon = ask_soon
        self._patience = patience
        self._changed = threading.Condition()
        self._tried = False
        self._owners: list[str | None] = [None] * VALKEY_CLUSTER_HASH_SLOTS

    def known(self, deadline: Deadline | None) -> bool:
        left = None if deadline is None else deadline.remaining()
        limit = self._patience if left is None else min(self._patience, left)
        with self._changed:
            self._changed.wait_for(lambda: self._tried, limit)
        known = any(self._owners)
        if not known:
            self._ask_soon()
        return known

    def owner(self, name: bytes) -> str:
        return self._owners[key_slot(name)] or self._seed  # which answers with where it is

    def servers(self) -> list[str]:
        return sorted({owner for owner in self._owners if owner is not None})

    def moved(self, name: bytes, redirect: Redirect) -> None:
        if not redirect.asking:
            self._owners[key_slot(name)] = redirect.address
            self._ask_soon()

    def suspect(self) -> None:
        self._ask_soon()

    def load(self) -> None:
        failures = []
        for address in dict.fromkeys((self._seed, *self.servers())):
            try:
                self._owners = self._ask(address)
                break
            except ConnectionError as error:
                failures.append(str(error))
        with self._changed:
            self._tried = True
            self._changed.notify_all()
        if not any(self._owners):
            raise ConnectionError(f"no node says who has which slots: {'; '.join(failures)}")

    def _ask(self, address: str) -> list[str | None]:
        with self._control(address) as client:
            answer = client.execute_command("CLUSTER SLOTS")
        try:
            return _owners(answer, address.rpartition(":")[0])
        except (TypeError, ValueError, AttributeError) as error:
            raise ConnectionError(f"{address}: an answer that is no map of slots: {error}") from error


def _owners(answer: Sequence[Any], said_by: str) -> list[str | None]:
    """Of rows ``[first slot, last slot, primary, replica, ...]`` ("CLUSTER SLOTS", valkey.io).

    A node is ``[host, port, ...]``; one that does not know its own host leaves it empty.
    """
    owners: list[str | None] = [None] * VALKEY_CLUSTER_HASH_SLOTS
    for first, last, (host, port, *_), *_ in answer:
        if not 0 <= first <= last < VALKEY_CLUSTER_HASH_SLOTS:
            raise ValueError(f"slots {first} to {last}")
        owner = f"{(host or b'').decode() or said_by}:{int(port)}"
        owners[first : last + 1] = [owner] * (last + 1 - first)
    if not any(owners):
        raise ValueError("no slot is anyone's")
    return owners


def of_each(topology: Topology) -> Iterable[str]:
    """Servers to look through, one after the other. Raises ConnectionError where none is known."""
    if not topology.known(None):
        raise ConnectionError("nobody has said yet which servers there are")
    return topology.servers()
