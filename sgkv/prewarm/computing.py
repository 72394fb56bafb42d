"""Prompts sent through a running server, so that the KV of their prefill lands in its store."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from sgkv.prewarm.amounts import total, within
from sgkv.prewarm.engine import Answer, Engine, EngineFacts
from sgkv.prewarm.journal import Journal
from sgkv.prewarm.outcomes import Outcome
from sgkv.prewarm.prompts import Prompt, PromptError, Request, read_request
from sgkv.prewarm.running import Run, Verdict

_LONGEST_WAIT = 120.0
"""Seconds; a server that asks for more with Retry-After is asked again earlier."""
_LOOK_SECONDS = 2.0
_QUIET_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Asking:
    """How prompts are sent."""

    model: str | None = None
    """Replaces the model that a line names; a line that names none gets the server's."""
    priority: int | None = None


def compute_prompts(
    prompts: Iterable[Prompt],
    engine: Engine,
    facts: EngineFacts,
    journal: Journal,
    run: Run,
    *,
    asking: Asking | None = None,
    max_bytes: int | None = None,
) -> None:
    """Send every prompt that `journal` does not have; `run` counts. The journal keeps what is done."""
    computer = Computer(engine, facts, journal, run, asking or Asking(priority=facts.lowest_priority))
    run.listener.prepare("reading prompts")
    looked_through = takewhile(lambda _: not run.control.stopped, prompts)
    todo = [prompt for prompt in looked_through if computer.is_new(prompt)]
    now = todo[: within(todo, max_bytes)]
    run.tally.add_all(Outcome.LEFT, total(todo).minus(total(now)))
    run.over("computing", now, lambda prompt: prompt.name, computer.compute)
    run.facts["tokens"] = computer.tokens.as_json()
    run.facts["server"] = {"model": facts.model, "priority": computer.asking.priority}


@dataclass(slots=True)
class Tokens:
    """Of the prompts that were answered. Any thread."""

    prompt: int = 0
    cached: int = 0
    unreported: int = 0
    """Answers that did not say how many of their tokens were cached."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, answer: Answer) -> None:
        with self._lock:
            self.prompt += answer.prompt_tokens
            self.cached += answer.cached_tokens or 0
            self.unreported += answer.cached_tokens is None

    def as_json(self) -> dict[str, int]:
        return {"prompt": self.prompt, "cached": self.cached, "cached_unreported": self.unreported}


@dataclass(frozen=True, slots=True)
class Computer:
    """Computes one prompt a call; any thread."""

    engine: Engine
    facts: EngineFacts
    journal: Journal
    run: Run
    asking: Asking
    tokens: Tokens = field(default_factory=Tokens)

    def is_new(self, prompt: Prompt) -> bool:
        """Whether it is still to be sent; counts it where it is not."""
        try:
            done = self._digest(read_request(prompt)) in self.journal
        except (PromptError, OSError, RecursionError) as error:
            self.run.tally.add(Outcome.REFUSED, prompt.size, prompt.name, str(error))
            return False
        if done:
            self.run.tally.add(Outcome.DONE_BEFORE, prompt.size)
        return not done

    def compute(self, prompt: Prompt) -> Verdict:
        """Send it, again where the server says later, and note it in the journal once it is answered."""
        if not self.run.control.admit(prompt.size):
            return Verdict(Outcome.LEFT)
        try:
            request = read_request(prompt)
        except (PromptError, OSError) as error:  # the file changed since it was looked through
            return Verdict(Outcome.REFUSED, str(error))
        digest = self._digest(request)
        if digest in self.journal:
            return Verdict(Outcome.DONE_BEFORE, "it stands in the files twice")
        answer = self._ask(request)
        if answer.ok:
            self.tokens.add(answer)
            tokens = {"prompt_tokens": answer.prompt_tokens, "cached_tokens": answer.cached_tokens}
            self.journal.add(digest, **tokens)
            return Verdict(Outcome.COMPUTED)
        if not answer.later:
            return Verdict(Outcome.REFUSED, answer.why)
        return Verdict(Outcome.LEFT if self.run.control.stopped else Outcome.FAILED, answer.why)

    def _ask(self, request: Request) -> Answer:
        body = self._body(request)
        answer = Answer(ok=False, later=True)
        for attempt in self.run.control.attempts():
            answer = self.engine.post(request.endpoint, body)
            if answer.ok or not answer.later:
                break
            attempt.pause = max(attempt.pause, min(answer.retry_after, _LONGEST_WAIT))
        return answer

    def _body(self, request: Request) -> dict[str, object]:
        named = self.asking.model or request.body.get("model") or self.facts.model
        body = {**request.body, "model": named, "max_tokens": 1, "temperature": 0, "stream": False}
        return body if self.asking.priority is None else {**body, "priority": self.asking.priority}

    def _digest(self, request: Request) -> str:
        """Of everything that shapes the KV, as far as a client can know: other weights are other work."""
        model = self.asking.model or request.body.get("model") or self.facts.model
        what = [self.facts.identity, model, request.endpoint, request.body]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]


def wait_stored(engine: Engine, before: Mapping[str, int] | None, run: Run, limit: float) -> None:
    """Wait until the server has stopped writing, `limit` seconds at most, and note what was written.

    The server writes behind its answers and tells nobody when it is done, so its metrics are looked
    at until three looks in a row show the same.
    """
    seen, same, looks = before, 0, int(limit / _LOOK_SECONDS)
    while before is not None and same < _QUIET_LOOKS and looks > 0 and run.control.wait(_LOOK_SECONDS):
        written = engine.written_bytes()
        same = same + 1 if written == seen else 0
        seen, looks = written, looks - 1
    if before is None or seen is None:
        run.facts["stored_bytes"] = None
        return
    run.facts["stored_bytes"] = {tier: size - before.get(tier, 0) for tier, size in seen.items()}
    run.facts["stored_settled"] = same >= _QUIET_LOOKS
