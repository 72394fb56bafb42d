"""A running server together with its store's folder."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sgkv.sglang.launch import DYNAMIC
from sgkv.testing.client import Generation
from sgkv.testing.server import SglangServer
from sgkv.testing.waiting import wait_until
from tests.e2e.rig import OUTPUT_TOKENS, Folder, Settings, assert_same, full_tokens, processes_of, prompt

STORAGE = "/hicache/storage-backend"

Models = Callable[..., Path]
"""`models(kind, seed=1)`: a model's folder."""
MakeServer = Callable[..., SglangServer]
"""`make_server(kind, seed=1, **options)`: a server that is not started yet."""


@dataclass(slots=True)
class Served:
    """A server whose command line attaches a store over `folder`."""

    server: SglangServer
    folder: Folder
    page_size: int = 64
    token_bytes: int = 2048
    """KV of one token in fp32, over all ranks: two KV heads of 32, four layers, K and V."""
    first_ids: list[int] = field(default_factory=lambda: prompt(1))
    first: Generation | None = None
    """The cold answer to `first_ids`, which `folder` holds."""

    def generate(self, ids: Sequence[int], **request: object) -> Generation:
        return self.server.generate(ids, OUTPUT_TOKENS, **request)

    def cold(self, ids: Sequence[int], folder: Folder | None = None, **request: object) -> Generation:
        """Answer a prompt nobody has stored, and wait until its pages are in the folder."""
        folder = folder or self.folder
        before = folder.size()
        answer = self.again(ids, **request)
        assert answer.cached_tokens == 0
        folder.wait_for_size(before + self.stored_bytes(ids))
        return answer

    def stored_bytes(self, ids: Sequence[int]) -> int:
        """What the whole pages of a prompt are worth on disk, without headers."""
        return full_tokens(ids, self.page_size) * self.token_bytes

    def again(self, ids: Sequence[int], **request: object) -> Generation:
        """Answer after SGLang has dropped its own device and host cache."""
        self.server.flush()
        return self.generate(ids, **request)

    def assert_restored(self, answer: Generation, cold: Generation, ids: Sequence[int]) -> None:
        """Every full page came from storage and the answer is that of the cold run."""
        stored = answer.cached_by_tier.get("storage", 0)
        assert stored == answer.cached_tokens == full_tokens(ids, self.page_size)
        assert_same(answer, cold)

    def attach(self, config: Settings, **sglang: object) -> None:
        """Replace the store of the running server; `sglang` are keys of SGLang's own."""
        self.detach()
        body = {
            "hicache_storage_backend": "dynamic",
            "hicache_storage_backend_extra_config_json": json.dumps({**DYNAMIC, **config, **sglang}),
            "hicache_storage_prefetch_policy": "wait_complete",
        }
        self.server.admin("PUT", STORAGE, body)

    def detach(self) -> None:
        """Take the store away. The flush waits for requests to end, without which SGLang refuses."""
        self.server.flush()
        self.server.admin("DELETE", STORAGE)

    def plain(self, ids: Sequence[int]) -> Generation:
        """The answer that no storage had a part in; leaves the server without a store."""
        self.detach()
        answer = self.generate(ids)
        assert answer.cached_tokens == 0
        return answer

    def samples(self, name: str, label: str) -> dict[str, float]:
        """The samples of a counter of ours by one label, over all ranks."""
        totals: dict[str, float] = {}
        for sample in self.server.metrics():
            if sample.name == f"sgkv_{name}_total":
                value = sample.labels.get(label, "")
                totals[value] = totals.get(value, 0.0) + sample.value
        return totals

    @contextmanager
    def counting(self, name: str, label: str) -> Iterator[dict[str, float]]:
        """What the block adds to a counter, by label; filled in when it ends."""
        added: dict[str, float] = {}
        before = self.samples(name, label)
        yield added
        for value, total in self.samples(name, label).items():
            if total > before.get(value, 0.0):
                added[value] = total - before.get(value, 0.0)

    @contextmanager
    def unserved(self) -> Iterator[Counter[str]]:
        """Pages that the block asks for in vain, by reason: not found, or found and not read."""
        reasons: Counter[str] = Counter()
        looked_up, read = self.counting("lookup_pages", "result"), self.counting("miss_pages", "reason")
        with looked_up as found, read as missed:
            yield reasons
        reasons.update(missed)
        reasons.update({reason: pages for reason, pages in found.items() if reason != "hit"})

    def crash(self, seed: int) -> list[list[int]]:
        """SIGKILL every process at an arbitrary moment of four concurrent requests; their prompts."""
        prompts = [prompt(1000 * seed + number) for number in range(4)]
        with ThreadPoolExecutor(len(prompts)) as clients:
            answers = [clients.submit(self.generate, ids) for ids in prompts]
            wait(answers, timeout=random.Random(seed).uniform(0.1, 1.0))
            self.server.kill()
        return prompts

    def assert_accounted(self) -> None:
        """Every rank's disk tier counts exactly the files that are there, and no dead writer's remain."""
        wait_until(
            lambda: set(self.disk_used()) == {self.folder.quota()}, "used bytes to be those on disk", 30
        )
        wait_until(lambda: not self.folder.temps(), "temporary files of the dead to go", 30)

    def disk_used(self) -> list[float]:
        """What each rank's disk tier counts as used; the gauge is set every few seconds."""
        return [
            sample.value
            for sample in self.server.metrics()
            if sample.name == "sgkv_tier_used_bytes" and sample.labels["tier"] == "disk"
        ]

    def processes(self) -> list[int]:
        """Ids of all processes of the server."""
        return processes_of(self.server.tree.pid)
