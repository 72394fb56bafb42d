"""The scheduler's side of the connector: which pages are asked for, loaded and stored, and when.

It knows tokens and blocks and never touches a store: what can be read is asked of the workers with one
step and answered with a later one, so that every rank answers for the part of the model it holds and the
scheduler never waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from vllm.v1.metrics.cache_hit_source import CacheHitSource

from sgkv.vllm.chains import Chain
from sgkv.vllm.connecting.envelopes import Orders, Report
from sgkv.vllm.connecting.messages import Load, Pages, Save, Tables
from sgkv.vllm.connecting.pending import PendingSaves, blocks_of
from sgkv.vllm.connecting.questions import Questions
from sgkv.vllm.connecting.tracking import Plan, Tracked, computed_after, newly_written

ANNOUNCED = "sgkv_pages"
"""Key of ``kv_transfer_params``: how many pages of the prompt a prefill engine has stored or is storing."""


class Scheduling:
    """One an engine. Scheduler thread; nothing here waits."""

    def __init__(self, plan: Plan, questions: Questions, pending: PendingSaves) -> None:
        self._plan = plan
        self._questions = questions
        self._pending = pending
        self._tracked: dict[str, Tracked] = {}
        self._loads: list[Load] = []
        self._late: list[Pages] = []
        self._written: set[int] = set()
        self._forgotten: list[str] = []
        self._reset = False
        self._numbers = count(1)

    @property
    def due(self) -> bool:
        """Whether workers have orders to come."""
        return bool(self._late) or self._reset

    def begin(self, request: Any) -> None:
        """Follow a request whose KV its tokens and its salt alone decide."""
        chain = Chain(request.all_token_ids, request.cache_salt, self._plan.page_tokens)
        self._tracked[request.request_id] = Tracked(request, chain)

    def matched(self, request: Any, local: int) -> tuple[int | None, bool]:
        """(tokens beyond `local` that can be loaded, whether between steps); None until it is known."""
        plan, tracked = self._plan, self._tracked.get(request.request_id)
        if tracked is None or not plan.loads or tracked.failed or request.skip_reading_prefix_cache:
            return 0, False
        tracked.local = local
        unit = max(plan.page_tokens, plan.block_tokens)
        limit = (request.num_tokens - 1) // unit * unit  # vLLM computes the last token in any case
        if limit <= local:
            return 0, False
        first, stop = local // plan.page_tokens, limit // plan.page_tokens
        announced = (request.kv_transfer_params or {}).get(ANNOUNCED, 0)
        found = self._questions.answer(request.request_id, tracked.chain, first, stop, announced)
        if found is None:
            return None, False
        tracked.source = found
        end = min((found[0] + found[1].pages) * plan.page_tokens // unit * unit, limit)
        return (end - local, not found[1].held) if end > local else (0, False)

    def allocated(self, request: Any, tables: Tables, tokens: int) -> None:
        """VLLM has blocks for the request, and wants `tokens` of them loaded."""
        tracked = self._tracked.get(request.request_id)
        if tracked is None:
            return
        if self._questions.drop(request.request_id) and not tokens:
            self._forgotten.append(request.request_id)
        if not tokens:
            return
        plan, stop = self._plan, tracked.local + tokens
        pages, held = plan.pages(tracked.local, stop), tracked.source[1].held
        cut = plan.cut(tables, pages)
        self._loads.append(Load(tracked.pages(pages, cut), tracked.local, stop, held))
        tracked.loading = not held
        tracked.loaded = frozenset(blocks_of([t[tracked.local // plan.block_tokens :] for t in tables]))
        self._written |= tracked.loaded
        tracked.offered = plan.whole(pages.stop)

    def sources(self, request: Any, tokens: int) -> dict[CacheHitSource, int]:
        """Which tiers the tokens to be loaded lie in."""
        tracked = self._tracked.get(request.request_id)
        if tracked is None or not tokens:
            return {}
        first, answer = tracked.source
        in_memory = (first + answer.in_memory) * self._plan.page_tokens - tracked.local
        in_memory = min(tokens, max(0, in_memory))
        found = {CacheHitSource.HOST: in_memory, self._plan.below: tokens - in_memory}
        return {source: count for source, count in found.items() if count}

    def orders(self, step: Any) -> Orders:
        """For the workers, with vLLM's `SchedulerOutput` of this step."""
        written = self._written | set(newly_written(step, self._plan.block_tokens))
        orders = Orders(reset=self._reset, revoked=self._pending.overwritten(written))
        if self._reset:
            orders.revoked = self._pending.numbers()
        late = [pages for pages in self._late if not blocks_of(pages.tables) & written]
        orders.forgotten, orders.loads, orders.lookups = self._forgotten, self._loads, self._questions.take()
        orders.saves = [self._save(pages) for pages in [*late, *self._complete(step)]]
        self._written, self._loads, self._late, self._forgotten = set(), [], [], []
        self._reset = False
        return orders

    def told(self, output: Any) -> None:
        """VLLM's `KVConnectorOutput` of a step."""
        for request in output.finished_recving or ():
            if request in self._tracked:
                self._tracked[request].loading = False
        for request in getattr(output, "failed_recving", None) or ():
            self._fail(self._tracked.get(request))
        invalid = set(output.invalid_block_ids or ())
        for tracked in self._tracked.values() if invalid else ():
            if tracked.loaded & invalid:
                self._fail(tracked)
        report = output.kv_connector_worker_meta
        if isinstance(report, Report):
            self._questions.told(report.answers)
            self._pending.ended(report.ended)

    def finished(self, request: Any, tables: Tables) -> dict[str, int] | None:
        """The request has ended: its last pages are stored, unless their blocks are used before."""
        tracked = self._tracked.pop(request.request_id, None)
        if self._questions.drop(request.request_id) or tracked is not None:
            self._forgotten.append(request.request_id)
        if tracked is None:
            return None
        full = self._plan.full(tracked, request.num_computed_tokens)
        if not tracked.loading and full > tracked.offered:
            self._offer(tracked, range(tracked.offered, full), tables, self._late)
        return {ANNOUNCED: full} if self._plan.announces else None

    def reset(self) -> None:
        """VLLM resets its caches, perhaps because its weights were changed: forget everything."""
        self._reset = True
        self._late.clear()
        self._forgotten += list(self._tracked)
        self._questions.clear()
        for tracked in self._tracked.values():
            tracked.outdated = True

    def _complete(self, step: Any) -> Iterable[Pages]:
        """Chunks that this step completes, and those before them that were not stored yet."""
        found: list[Pages] = []
        for request, computed in computed_after(step):
            tracked = self._tracked.get(request)
            if tracked is None:
                continue
            if request in step.scheduled_cached_reqs.resumed_req_ids:
                tracked.offered = 0  # what it was storing when its blocks were taken may be lost
            ready = self._plan.whole(self._plan.full(tracked, computed))
            if ready > tracked.offered:
                tables = step.kv_connector_block_state.get_block_ids(request)
                self._offer(tracked, range(tracked.offered, ready), tables, found)
        return found

    def _offer(self, tracked: Tracked, pages: range, tables: Tables | None, to: list[Pages]) -> None:
        tracked.offered = pages.stop
        if self._plan.saves and tables is not None and not tracked.outdated:
            to.append(tracked.pages(pages, self._plan.cut(tables, pages)))

    def _save(self, pages: Pages) -> Save:
        save = Save(next(self._numbers), pages)
        self._pending.begin(save)
        return save

    def _fail(self, tracked: Tracked | None) -> None:
        if tracked is not None:
            tracked.failed, tracked.loading, tracked.offered = True, False, 0
