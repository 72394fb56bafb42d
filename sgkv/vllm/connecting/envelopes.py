"""All that the two sides of the connector tell each other in one step of the engine.

Orders go down with vLLM's `SchedulerOutput`, reports come back with its `ModelRunnerOutput`; vLLM pickles
both between processes and adds up the reports of all workers (`KVConnectorWorkerMetadata.aggregate`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

from sgkv.vllm.connecting.messages import Answer, Load, Lookup, Save


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
