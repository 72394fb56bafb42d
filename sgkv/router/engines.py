"""The engines behind a router, and the choice among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from sgkv.control.places import Device
from sgkv.router.scoring import Load, covered, seconds
from sgkv.router.settings import EngineSettings, RouterSettings


@dataclass(slots=True)
class Engine:
    """One of them, as the router sees it."""

    at: int
    settings: EngineSettings
    load: Load = field(default_factory=Load)
    healthy: bool = True
    requests: int = 0
    prompt_tokens: int = 0
    held_tokens: int = 0
    """Of these, what was believed to be there already."""

    @property
    def url(self) -> str:
        return self.settings.url.rstrip("/")


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a request goes."""

    engine: Engine
    held: int
    """Tokens of its prompt that are believed to be there."""


Held = Sequence[Mapping[Device, int]]
"""For each engine, leading tokens of a prompt on each of its devices."""


class Engines:
    """Of the event loop alone."""

    def __init__(self, settings: RouterSettings) -> None:
        self.all = [Engine(at, one) for at, one in enumerate(settings.engines)]
        self._settings = settings
        self._turns = count()

    def choose(self, tokens: int, held: Held, tried: frozenset[int]) -> Choice | None:
        """The best of those that were not tried yet, healthy ones before others; None where none is left."""
        left = [engine for engine in self.all if engine.at not in tried]
        able = [engine for engine in left if engine.healthy] or left
        if not able:
            return None
        turn = next(self._turns)
        if self._settings.policy == "round_robin":
            engine = able[turn % len(able)]
        else:
            costs = self._settings.costs
            first = turn % len(able)  # equals take turns
            able = able[first:] + able[:first]
            engine = min(able, key=lambda one: seconds(costs, one.load, tokens, held[one.at]))
        return Choice(engine, covered(tokens, held[engine.at]))


class Errand:
    """One request at an engine: what it adds to the engine's load, until it is taken off again."""

    def __init__(self, choice: Choice, tokens: int) -> None:
        self._engine = choice.engine
        self._waiting = tokens - choice.held
        self._running = 1
        engine = choice.engine
        engine.load.tokens += self._waiting
        engine.load.running += 1
        engine.requests += 1
        engine.prompt_tokens += tokens
        engine.held_tokens += choice.held

    def begun(self) -> None:
        """Its first byte has come. Idempotent."""
        self._engine.load.tokens -= self._waiting
        self._waiting = 0

    def ended(self) -> None:
        """Idempotent."""
        self.begun()
        self._engine.load.running -= self._running
        self._running = 0
