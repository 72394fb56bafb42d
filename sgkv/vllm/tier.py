"""sgkv as a secondary tier of vLLM's tiered KV offload (`TieringOffloadingSpec`), loaded by module path.

vLLM copies KV between the device and rows of host memory, decides what is stored and promoted, and
calls us for the rest, all from its scheduler thread (under its manager's lock since 0.33). So nothing
here waits: lookups are answered from memory, moving bytes happens in threads of our own, and an error
of ours is a miss or a failed job, never an exception.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, ClassVar

import vllm
from vllm.v1.kv_offload.base import Medium, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import SecondaryTierManager

from sgkv.backends.deadline import Deadline
from sgkv.backends.workers import WorkerPool
from sgkv.boundary import contained
from sgkv.config import load, resolve
from sgkv.store.build import build_store
from sgkv.vllm import compat, leftovers, metrics
from sgkv.vllm.answers import HIT, MISS, Answers
from sgkv.vllm.chains import Chain
from sgkv.vllm.facts import announced_engine
from sgkv.vllm.library import Library
from sgkv.vllm.settings import settings
from sgkv.vllm.shelves import Wanted, group_of
from sgkv.vllm.transfers import Outcome, Transfers

logger = logging.getLogger("sgkv")

_ALIGNED = 4096
"""Tokens, of which the pieces of a job are multiples: the largest chunk that can be configured."""
_LOOKUPS = 1024
"""Batches of lookups that may wait; past it chunks are misses."""
_STORE_SHARE = 2
"""At most one of so many rows of host memory may wait to be stored."""
_CLOSE_SECONDS = 15.0


class SgkvTier(SecondaryTierManager):
    """Offload chunks in an embedded sgkv store. One instance an engine."""

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        **options: Any,
    ) -> None:
        """`options` are the rest of the tier's entry in ``secondary_tiers``: sgkv's configuration.

        `primary_kv_view` is vLLM's host memory, ``(rows, bytes)``. Raises ConfigError with the path of each
        bad field: this is the one moment where failing is better than serving nothing.
        """
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        if not compat.supported(vllm.__version__):
            logger.warning("sgkv: vLLM %s is not one that this tier was tested with", vllm.__version__)
        loaded = settings(load, options)
        resolved = resolve(loaded.config)
        for warning in resolved.warnings:
            logger.warning("sgkv: %s", warning)
        self._times = loaded.config.engine
        self._view = primary_kv_view.cast("B")  # CPython's memoryview has no views of rows
        self._row_bytes = self.block_size_bytes
        engine = announced_engine()
        self._chains = engine.chains if engine else None
        store = build_store(resolved)
        try:
            self.library = Library(store, loaded.config, engine, offloading_spec.config, self._row_bytes)
        except ValueError:
            store.close()
            raise
        counters = self.library.store.counters
        self._increments = metrics.Increments(counters)
        self._answers = Answers(self._ask)
        self._known = self._answers.known
        self.lookups = WorkerPool(1, "sgkv-lookup", backlog=_LOOKUPS)
        self.transfers = Transfers(counters, max(self._row_bytes, len(self._view) // _STORE_SHARE))
        self._report_leftovers()

    def lookup(self, key: bytes, req_context: Any) -> Any:
        """HIT, MISS, or RETRY until the answer is known. Called for each chunk in each step of a lookup."""
        return self._known.get(key) or self._answers.ask(key, req_context)

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: Any) -> None:
        self._answers.forget(req_context.req_id)
        if self._chains is not None:
            self._chains.forget(req_context.req_id)

    def on_schedule_end(self, context: Any) -> None:
        """The end of a scheduler step: look up what it asked for."""
        self._answers.flush()

    def submit_store(self, job_metadata: Any) -> None:
        """Store rows; vLLM keeps them as they are until the job's result."""
        self._submit(job_metadata, is_load=False)

    def submit_load(self, job_metadata: Any) -> None:
        """Fill rows; nobody else touches them until the job's result."""
        self._answers.loading(list(job_metadata.keys))
        self._submit(job_metadata, is_load=True)

    def get_finished_jobs(self) -> Iterable[Any]:
        """One result a job; also the moment when lookups that were answered become known."""
        self._answers.collect()
        return [self._result(outcome) for outcome in self.transfers.outcomes()]

    def drain_jobs(self) -> None:
        """VLLM resets its caches: on request, for a sleep, or because its weights were changed.

        It does not say which, so what is stored from now on belongs to new, private weights and nothing older
        is found. Waits for jobs under way, no longer than their deadlines.
        """
        if not self.transfers.drain(self._longest):
            logger.warning("sgkv: transfers did not end within %.0f s", self._longest)
        self._answers.clear()
        with contained("a reset", self.library.store.counters):
            self.library.reset()

    def get_stats(self) -> Any:
        return self._increments.take()

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        return metrics.definitions()

    def shutdown(self) -> None:
        """End the threads, close the store and let go of vLLM's memory, which it cannot unmap before."""
        self.lookups.close(_CLOSE_SECONDS)
        ended = self.transfers.close(_CLOSE_SECONDS)
        with contained("closing the store", self.library.store.counters):
            self.library.store.close()
        if ended:
            self._view.release()

    @property
    def _longest(self) -> float:
        return 2 * (self._times.get_deadline + self._times.set_deadline) + 5.0

    def _ask(self, context: Any, keys: Sequence[bytes]) -> bool:
        chain = self._chain(context)

        def find() -> None:
            answers = dict.fromkeys(keys, MISS)
            with contained("a lookup", self.library.store.counters):
                wanted, deadline = _wanted(keys, context), Deadline(self._times.exists_deadline)
                found = self.library.find(wanted, chain, deadline)
                answers.update(dict.fromkeys(found, HIT))
            self._answers.publish(answers)

        return self.lookups.submit(find) is not None

    def _submit(self, job: Any, *, is_load: bool) -> None:
        keys = list(job.keys)
        rows = dict(zip(keys, compat.chunk_ids(job), strict=True))
        move = partial(self._move, context=job.req_context, rows=rows, chain=self._chain(job.req_context))
        self.transfers.submit(Outcome(job.job_id, keys, is_load), len(keys) * self._row_bytes, move)

    def _chain(self, context: Any) -> Chain | None:
        return self._chains.of(context.req_id) if self._chains else None

    def _move(self, outcome: Outcome, context: Any, rows: dict[bytes, int], chain: Chain | None) -> None:
        """One job, its pieces in several threads at once."""
        began = time.perf_counter()
        pieces = self._pieces(outcome.keys, context)
        failed = False

        def move(at: int) -> None:
            nonlocal failed
            if not failed and not self.transfers.refusing:  # the rest of a prefix is of no use without it
                done = self._move_piece(pieces[at], outcome.is_load, rows, chain)
                outcome.done.extend(done)
                failed = not done

        self.transfers.spread(outcome, len(pieces), move)
        outcome.seconds = time.perf_counter() - began
        outcome.nbytes = len(outcome.done) * self._row_bytes

    def _pieces(self, keys: Collection[bytes], context: Any) -> list[list[Wanted]]:
        """`keys` by group and position, cut where sgkv's own chunks end."""
        pieces: list[list[Wanted]] = []
        for group, members in groupby(_wanted(keys, context), key=group_of):
            shelf = self.library.shelf(group)
            rows = shelf.piece_bytes // self._row_bytes
            span = max(1, rows * shelf.chunk_tokens // _ALIGNED) * _ALIGNED
            pieces += [list(piece) for _, piece in groupby(members, key=partial(_piece_of, span))]
        return pieces

    def _move_piece(
        self, piece: Sequence[Wanted], is_load: bool, rows: dict[bytes, int], chain: Chain | None
    ) -> list[bytes]:
        """The keys that were moved."""
        shelf = self.library.shelf(group_of(piece[0]))
        buffers = [self._row(rows[chunk.key]) for chunk in piece]
        deadline = Deadline(self._times.get_deadline if is_load else self._times.set_deadline)
        try:
            moved = (shelf.read if is_load else shelf.write)(piece, buffers, chain, deadline)
        finally:
            for buffer in buffers:
                buffer.release()
        return [chunk.key for chunk, done in zip(piece, moved, strict=True) if done]

    def _result(self, outcome: Outcome) -> Any:
        if outcome.is_load and len(outcome.done) < len(outcome.keys):
            failed = [key for key in outcome.keys if key not in set(outcome.done)]
            self._answers.failed(failed)
            self.library.store.counters.add("failed_loads", len(failed))
        return compat.job_result(outcome.job_id, outcome.keys, outcome.done, outcome.seconds, outcome.nbytes)

    def _row(self, chunk: int) -> memoryview:
        return self._view[chunk * self._row_bytes : (chunk + 1) * self._row_bytes]

    @staticmethod
    def _report_leftovers() -> None:
        if files := leftovers.orphans():
            logger.warning("sgkv: %s", leftovers.describe(files))


def _wanted(keys: Collection[bytes], context: Any) -> list[Wanted]:
    """`keys` by group and position."""
    end_of = context.get_offload_key_position
    return sorted((Wanted(key, end_of(key) or 0) for key in keys), key=_order)


def _order(chunk: Wanted) -> tuple[int, int]:
    return group_of(chunk), chunk.end


def _piece_of(span: int, chunk: Wanted) -> int:
    """Which piece of `span` tokens of its request a chunk lies in."""
    return (chunk.end - 1) // span
