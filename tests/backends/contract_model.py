"""Any sequence of calls, compared with a dict."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sgkv.backends.base import Backend, GetItem, Part, PutItem, Status
from tests.backends.blobs import blob, cut, get

CAPACITY = 160 << 10
KEYS = [f"{namespace}/{kind}/{number}" for namespace in ("n1", "n2") for kind in "cp" for number in range(4)]

keys = st.sampled_from(KEYS)
sizes = st.sampled_from([1, 100, 4096, 5000, 20_000, 40_000, 65_536])


class BackendMachine(RuleBasedStateMachine):
    """The model holds what was put; the backend may lose some of it to eviction, and nothing else."""

    def __init__(self, build: Callable[[Path, int], Backend]) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.backend = build(Path(self.folder.name), CAPACITY)
        self.model: dict[str, bytes] = {}
        self.lost = 0

    def forget(self, key: str) -> None:
        self.lost += self.model.pop(key, None) is not None

    @rule(key=keys, size=sizes, seed=st.integers(0, 9), cuts=st.lists(st.integers(0, 30_000), max_size=3))
    def put(self, key: str, size: int, seed: int, cuts: list[int]) -> None:
        data = blob(size, seed)
        status = self.backend.put([PutItem(key, cut(data, cuts))])[0]
        if status is Status.OK:
            self.forget(key)
            self.model[key] = data
        elif status is Status.EXISTS:
            assert key in self.model
        else:
            assert status is Status.FULL

    @rule(key=keys, offset=st.integers(0, 70_000), size=sizes)
    def get_part(self, key: str, offset: int, size: int) -> None:
        into = bytearray(size)
        status = self.backend.get([GetItem(key, [Part(offset, memoryview(into))])])[0]
        if status is Status.ABSENT:
            self.forget(key)
        elif offset + size > len(self.model[key]):
            assert status is Status.SHORT
        else:
            assert status is Status.OK
            assert into == self.model[key][offset : offset + size]

    @rule(batch=st.lists(keys, max_size=6))
    def contains(self, batch: list[str]) -> None:
        for key, there in zip(batch, self.backend.contains(batch), strict=True):
            assert key in self.model or not there
            if not there:
                self.forget(key)

    @rule(batch=st.lists(keys, max_size=3, unique=True))
    def delete(self, batch: list[str]) -> None:
        for key, deleted in zip(batch, self.backend.delete(batch), strict=True):
            assert key in self.model or not deleted
            if deleted:
                del self.model[key]
            self.forget(key)

    @rule(prefix=st.sampled_from(["n1/", "n2/c/", "n3/"]))
    def delete_prefix(self, prefix: str) -> None:
        present = {info.key for info in self.backend.scan(prefix)}
        self.backend.delete_prefix(prefix)
        for key in [key for key in self.model if key.startswith(prefix)]:
            if key in present:
                del self.model[key]
            else:
                self.forget(key)

    @rule(batch=st.lists(keys, max_size=4), pinned=st.booleans())
    def pin(self, batch: list[str], pinned: bool) -> None:
        self.backend.pin(batch, pinned)

    @rule(batch=st.lists(keys, max_size=4))
    def touch(self, batch: list[str]) -> None:
        self.backend.touch(batch)

    @invariant()
    def counts_agree(self) -> None:
        present = {info.key: info.size for info in self.backend.scan()}
        assert all(len(self.model[key]) == size for key, size in present.items())
        stats = self.backend.stats()
        assert stats.blobs == len(present)
        assert stats.used_bytes <= CAPACITY
        assert self.lost + len(self.model) - len(present) == stats.evicted_blobs
        assert stats.leases == 0

    def teardown(self) -> None:
        for key, data in self.model.items():
            assert get(self.backend, key, len(data)) in (data, Status.ABSENT)
        self.backend.close()
        self.folder.cleanup()


class ModelTests:
    """Runs the machine over the backend under test."""

    build: Callable[[Path, int], Backend]

    def test_any_sequence_of_calls(self) -> None:
        run_state_machine_as_test(
            partial(BackendMachine, self.build),  # type: ignore[arg-type]
            settings=settings(
                max_examples=20,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                derandomize=True,
            ),
        )
