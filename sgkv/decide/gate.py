"""T_load + T_scatter + T_control < T_prefill_saved, or the answer is a shorter hit.

The rule is that of Liu, Cheng, Yao et al., "LMCache", arXiv 2510.09665, section on when loading pays.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sgkv.decide.prefill import Prefill
from sgkv.decide.speed import TierSpeed

_TRIAL = 256
"""Of so many loads that seem not worth it one is done, so that a tier which got faster is found out."""


class Mode(StrEnum):
    """What becomes of a decision."""

    OFF = "off"
    SHADOW = "shadow"
    """It is counted, and everything is loaded."""
    ON = "on"


@dataclass(frozen=True, slots=True)
class Reach:
    """How far one tier and those above it get."""

    tier: str
    pages: int
    """Leading pages of the span."""


@dataclass(frozen=True, slots=True)
class Step:
    """What it would take to load up to a reach, and what it would save."""

    reach: Reach
    load_s: float
    """All of T_load, T_scatter and T_control, from the first page on."""
    saved_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """How much to load, and why."""

    pages: int
    hit: int
    """Pages that could be loaded."""
    steps: Sequence[Step] = ()
    trial: bool = False
    """It does not seem worth it and is loaded to see."""
    learning: bool = False
    """A tier that is not known yet is loaded from to know it."""
    worth: int = 0
    """Leading pages that seem worth loading: fewer than `pages` in a trial and while learning."""

    def explain(self) -> str:
        """One line for a person."""
        seen = "; ".join(
            f"{step.reach.pages} pages to {step.reach.tier}: load {step.load_s * 1e3:.2f} ms, "
            f"prefill saved {step.saved_s * 1e3:.2f} ms"
            for step in self.steps
        )
        why = " (trial)" if self.trial else " (learning)" if self.learning else ""
        return f"load {self.pages} of {self.hit} pages{why}: {seen or 'nothing to load'}"


class Gate:
    """Decides for a store. Any thread; a decision takes microseconds and no I/O."""

    def __init__(
        self,
        mode: Mode,
        prefill: Prefill,
        speeds: Mapping[str, TierSpeed],
        *,
        scatter_bytes_s: float = float("inf"),
        control_s: float = 0.0,
    ) -> None:
        """`speeds` by name of the tier; one without is as fast as its bytes are installed, at
        `scatter_bytes_s`. `control_s` is what a load costs whatever its size.
        """
        self.mode = mode
        self.last: Decision | None = None
        """The latest decision, for an explanation."""
        self._prefill = prefill
        self._speeds = speeds
        self._scatter = scatter_bytes_s
        self._control = control_s
        self._lock = threading.Lock()
        self._declined = 0

    def decide(
        self, reaches: Sequence[Reach], page_bytes: int, page_tokens: int, before: int = 0
    ) -> Decision:
        """How many leading pages to load, of those that tiers have.

        `reaches` grow. `before` is how many tokens come before the first page, whose KV the engine has.
        Loads cost in proportion to length and save more than that, so the ends of reaches are the only
        lengths that can be best.
        """
        steps = self._steps(reaches, page_bytes, page_tokens, before)
        hit = steps[-1].reach.pages if steps else 0
        best = max(steps, key=lambda step: step.saved_s - step.load_s, default=None)
        pages = best.reach.pages if best is not None and best.saved_s > best.load_s else 0
        learning = any(not self._known(step.reach.tier) for step in steps if step.reach.pages > pages)
        trial = not learning and pages < hit and self._is_trial()
        decision = Decision(hit if learning or trial else pages, hit, steps, trial, learning, pages)
        self.last = decision
        return decision

    def pays(self, seconds: float, size: int, tokens: int, before: int, begins: bool) -> bool:
        """Whether a read of `size` bytes that took `seconds` was quicker than computing its `tokens`.

        `begins` says that it is the first of its load, which bears what loads cost whatever their size.
        """
        load = seconds + size / self._scatter + (self._control if begins else 0.0)
        return load < self._prefill.seconds(tokens, before)

    def _steps(self, reaches: Sequence[Reach], page_bytes: int, page_tokens: int, before: int) -> list[Step]:
        steps, load, done = list[Step](), self._control, 0
        for reach in reaches:
            if reach.pages <= done:
                continue
            size = (reach.pages - done) * page_bytes
            speed = self._speeds.get(reach.tier)
            load += (speed.seconds(size) if speed else 0.0) + size / self._scatter
            done = reach.pages
            steps.append(Step(reach, load, self._prefill.seconds(done * page_tokens, before)))
        return steps

    def _known(self, tier: str) -> bool:
        speed = self._speeds.get(tier)
        return speed is None or speed.known

    def _is_trial(self) -> bool:
        with self._lock:
            self._declined += 1
            return self._declined % _TRIAL == 0
