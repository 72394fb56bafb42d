"""One prompt, four times: unseen, from the store, after a crash, and from an emptied store."""

from __future__ import annotations

from collections.abc import Callable

from sgkv.demo.engine import (
    FULL_PAGE_TOKENS,
    OUTPUT_TOKENS,
    Model,
    empty_store,
    prompt,
    traffic,
    wait_until_on_disk,
    warm_up,
)
from sgkv.demo.results import Run
from sgkv.testing.client import Generation
from sgkv.testing.server import SglangServer

SEED = 0


class Scenario:
    """Runs on a server with sgkv that is up, and leaves it up."""

    def __init__(self, server: SglangServer, model: Model, say: Callable[[str], None]) -> None:
        self._server = server
        self._model = model
        self._say = say
        self._cold: Generation | None = None

    def play(self) -> list[Run]:
        """The runs in order, named as in the demo's JSON."""
        self._say("cold: a prompt that nobody has seen")
        runs = [self._ask("cold", stored=True)]
        self._say("warm: the same, after SGLang has dropped its own caches")
        self._server.flush()
        runs.append(self._ask("warm"))
        self._say("restarted: the same, after SIGKILL to the engine and a new start")
        self._server.kill()
        self._server.start()
        warm_up(self._server)
        runs.append(self._ask("restarted"))
        self._say("emptied: the same, after the store was cleared")
        empty_store(self._server)
        self._server.flush()
        runs.append(self._ask("emptied", stored=True))
        return runs

    def _ask(self, name: str, *, stored: bool = False) -> Run:
        """Answer the prompt; `stored`: its pages are new, so wait until they are on disk."""
        before = traffic(self._server)
        answer = self._server.generate(prompt(SEED), OUTPUT_TOKENS)
        if stored:
            wait_until_on_disk(self._server, self._model, before)
        self._cold = self._cold or answer
        moved = traffic(self._server) - before
        return Run(name, answer, FULL_PAGE_TOKENS, answer.same_output(self._cold), moved)
