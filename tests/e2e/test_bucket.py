"""Two servers and one bucket: what one writes the other reads; a bucket that dies costs next to nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.backends.s3 import S3Backend
from sgkv.demo.results import Ratio
from sgkv.testing.s3 import ACCESS_KEY, BUCKET, REGION, SECRET_KEY
from sgkv.testing.s3.weed import SeaweedServer
from sgkv.testing.waiting import wait_until
from tests.e2e.rig import PATIENT, Folder, Settings, assert_same, prompt, settings
from tests.e2e.served import MakeServer, Served

pytestmark = pytest.mark.server

PREFIX = "fleet/"
PAIRS, LONG = 12, 5000
"""Prompts, and tokens of each: a first token that takes a while is told more surely from another."""
BAR = 1.05
"""Of the time to the first token without a bucket."""


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    with SeaweedServer(tmp_path_factory.mktemp("weed")) as server:
        yield server


def node(folder: Folder, bucket: SeaweedServer, **s3: object) -> Settings:
    """A store whose memory and disk are its own and whose bucket is everybody's."""
    store = settings(folder)
    far = {
        "type": "s3", "bucket": BUCKET, "endpoint": bucket.endpoint, "prefix": PREFIX, "region": REGION,
        "access_key": ACCESS_KEY, "secret_key": SECRET_KEY, **s3,
    }  # fmt: skip
    return {**store, "tiers": [*store["tiers"], far]}


def stored_bytes(bucket: SeaweedServer) -> int:
    """Of all blobs in the bucket."""
    reader = S3Backend(bucket.options(prefix=PREFIX, list_seconds=None))
    try:
        return sum(info.size for info in reader.scan())
    finally:
        reader.close()


@pytest.fixture(scope="module")
def writer(llama: Served, bucket: SeaweedServer, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Has put its answer to `first_ids` into the bucket."""
    folder = Folder(tmp_path_factory.mktemp("writer") / "kv")
    llama.attach(node(folder, bucket, deadlines=PATIENT))
    assert_same(llama.cold(llama.first_ids, folder), llama.first)
    wait_until(lambda: stored_bytes(bucket) >= llama.stored_bytes(llama.first_ids), "the bucket to have it")
    return llama


@pytest.fixture(scope="module")
def reader(
    make_server: MakeServer, writer: Served, bucket: SeaweedServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Another server, whose own tiers are empty. Default deadlines, as in production."""
    folder = Folder(tmp_path_factory.mktemp("reader") / "kv")
    with make_server("llama", storage_config=node(folder, bucket)) as server:
        yield Served(server, folder)
        server.kill()


def test_a_new_node_reads_what_another_wrote(writer: Served, reader: Served):
    with reader.counting("hit_pages", "tier") as hits:
        answer = reader.generate(writer.first_ids)
    reader.assert_restored(answer, writer.first, writer.first_ids)
    assert set(hits) == {"s3"}


def test_and_has_it_in_memory_afterwards(writer: Served, reader: Served):
    wait_until(lambda: reader.samples("promoted_pages", "pool"), "pages in the cpu tier")
    with reader.counting("hit_pages", "tier") as hits:
        answer = reader.again(writer.first_ids)
    reader.assert_restored(answer, writer.first, writer.first_ids)
    assert set(hits) == {"cpu"}


def test_a_bucket_that_dies_costs_next_to_nothing(
    writer: Served, reader: Served, bucket: SeaweedServer, tmp_path: Path
):
    """Cold prompts on both servers, in pairs; the writer has no bucket now, the reader's is dead.

    What a store without a bucket costs beside SGLang alone is the demo's to measure.
    """
    without = Folder(tmp_path / "kv")
    writer.attach(settings(without))
    bucket.kill()
    plain, ours = [], []
    for number in range(PAIRS + 1):
        ids = prompt(500 + number, LONG)
        pair = [(writer, plain), (reader, ours)]
        answers, folders = [], [without, reader.folder]
        sizes = [folder.size() for folder in folders]
        for served, times in pair if number % 2 else reversed(pair):
            answers.append(served.generate(ids))
            times.append(answers[-1].ttft_s)
        assert_same(*answers)
        assert [answer.cached_tokens for answer in answers] == [0, 0]
        for folder, size in zip(folders, sizes, strict=True):  # what they do afterwards, they have done
            folder.wait_for_size(size + reader.stored_bytes(ids))
    ratio = Ratio.of(ours[1:], plain[1:])
    assert ratio.within(BAR) is not False, ratio
