"""What the scheduler's side and the workers' side of the connector tell each other, once a step.

Orders go down with vLLM's `SchedulerOutput`, reports come back with its `ModelRunnerOutput`; vLLM pickles
both between processes and adds up the reports of all workers (`KVConnectorWorkerMetadata.aggregate`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

Tables = Sequence[Sequence[int]]
"""Block ids by KV cache group; 0 is vLLM's null block, where a group keeps nothing."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Consecutive pages of one request, and the blocks that they lie in."""

    request: str
    before: Sequence[str]
    """Hashes of the pages before them."""
    hashes: Sequence[str]
    tables: Tables
    """From the block that holds the first token of the first page on."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Which prefix of these pages can be loaded?"""

    number: int
    request: str
    before: Sequence[str]
    hashes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Load:
    """Fill blocks with tokens from `first` on."""

    pages: Pages
    first: int
    """The first token that is wanted; it may lie within the first page."""
    stop: int
    layer_wise: bool
    """While the model computes, from pages that are held in memory."""


@dataclass(frozen=True, slots=True)
class Save:
    """Store pages that are complete after this step."""

    number: int
    pages: Pages


@dataclass(slots=True)
class Orders(KVConnectorMetadata):
    """Of one step, in the order in which they are carried out."""

    reset: bool = False
    """Nothing that was stored before may be found any more."""
    revoked: list[int] = field(default_factory=list)
    """Saves whose blocks are written to by this step."""
    forgotten: list[str] = field(default_factory=list)
    """Requests that have ended, or no longer want what is held for them."""
    lookups: list[Lookup] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Answer:
    """To one lookup, of one rank or of several."""

    pages: int
    """Leading pages that every rank can load."""
    in_memory: int = 0
    """Of those, the leading pages in the cpu tier."""
    held: bool = False
    """All of them are held there, on every rank, until they are loaded."""
    ranks: int = 1

    def __or__(self, other: Answer) -> Answer:
        return Answer(
            min(self.pages, other.pages),
            min(self.in_memory, other.in_memory),
            self.held and other.held and self.pages == other.pages,
            self.ranks + other.ranks,
        )


@dataclass(slots=True)
class Report(KVConnectorWorkerMetadata):
    """Of one step."""

    answers: dict[int, Answer] = field(default_factory=dict)
    """By the number of the lookup."""
    ended: Counter[int] = field(default_factory=Counter)
    """Saves that are over, by how many ranks."""

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        assert isinstance(other, Report)
        for number, answer in other.answers.items():
            mine = self.answers.get(number)
            self.answers[number] = answer if mine is None else mine | answer
        self.ended += other.ended
        return self
