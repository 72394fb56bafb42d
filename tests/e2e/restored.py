"""What must hold on every kind of server, as classes to subclass with a fixture `served`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from sgkv.testing.server import SglangServer
from tests.e2e.rig import Folder, assert_same, prompt, settings
from tests.e2e.served import Served


@contextmanager
def serving(server: SglangServer, folder: Folder, **facts: int) -> Iterator[Served]:
    """Run `server` with its cold answer in `folder`: what servers of other kinds stored is no hit."""
    with server:
        served = Served(server, folder, **facts)
        served.first = served.cold(served.first_ids)
        yield served
        server.kill()  # sooner done than SIGTERM, which the shared server gets


class RestoredTests:
    """Answers from storage are those of the cold run; `served.first` is that run.

    A subclass says what the fixture `served` runs: its `kind` of model and `token_bytes` of KV.
    """

    page_size, layout = 64, "page_first"
    options: ClassVar[Mapping[str, object]] = {}
    """Of `SglangServer`."""
    common_tokens = 1536
    """Cached of 1700 in common: a disk tier holds chunks of 256."""

    def test_after_a_flush(self, served: Served):
        served.attach(settings(served.folder))
        ids = prompt(2)
        cold = served.cold(ids)
        with served.counting("hit_pages", "tier") as hits:
            answer = served.again(ids)
        served.assert_restored(answer, cold, ids)
        assert hits.keys() == {"cpu"}

    def test_from_disk_alone(self, served: Served):
        served.attach(settings(served.folder, cpu=False))
        with served.counting("hit_pages", "tier") as hits:
            answer = served.again(served.first_ids)
        served.assert_restored(answer, served.first, served.first_ids)
        assert hits.keys() == {"disk"}

    def test_the_common_part_of_another_prompt(self, served: Served):
        ids = [*served.first_ids[:1700], *prompt(3, 300)]
        served.attach(settings(served.folder))
        answer = served.again(ids)
        assert answer.cached_tokens == self.common_tokens
        assert_same(answer, served.plain(ids))


class CrashTests:
    """SIGKILL at an arbitrary moment of concurrent requests, and a start on the same folder."""

    def test_after_sigkill_while_serving(self, served: Served):
        served.attach(settings(served.folder))
        interrupted = served.crash(seed=served.page_size)
        served.server.start()
        served.assert_accounted()
        served.assert_restored(served.generate(served.first_ids), served.first, served.first_ids)
        answers = [served.generate(ids) for ids in interrupted]
        for ids, answer in zip(interrupted, answers, strict=True):
            assert_same(answer, served.plain(ids))
        assert not served.folder.quarantined()
