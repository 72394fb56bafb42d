"""Two servers and one bucket: what one writes the other reads; a bucket that dies costs next to nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.testing.pairs import Ratio, ask_in_turns
from sgkv.testing.s3 import tier_settings
from sgkv.testing.s3.weed import SeaweedServer
from sgkv.testing.waiting import wait_until
from tests.e2e.buckets import stored_bytes
from tests.e2e.rig import (
    OUTPUT_TOKENS,
    PATIENT,
    Folder,
    Settings,
    assert_same,
    full_tokens,
    over,
    prompt,
    settings,
)
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
    return {**store, "tiers": [*store["tiers"], *over_bucket(bucket, **s3)["tiers"]]}


def over_bucket(bucket: SeaweedServer, **s3: object) -> Settings:
    """A store of nothing but the bucket."""
    return over(tier_settings(bucket.endpoint, prefix=PREFIX, **s3))


@pytest.fixture(scope="module")
def writer(llama: Served, bucket: SeaweedServer, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Has put its answer to `first_ids` into the bucket."""
    folder = Folder(tmp_path_factory.mktemp("writer") / "kv")
    llama.attach(node(folder, bucket, deadlines=PATIENT))
    assert_same(llama.cold(llama.first_ids, folder), llama.first)
    options = bucket.options(prefix=PREFIX, list_seconds=None)
    wait_until(lambda: stored_bytes(options) >= llama.stored_bytes(llama.first_ids), "the bucket to have it")
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
    prompts = [prompt(500 + number, LONG) for number in range(PAIRS + 1)]
    pairs, folders = [], [without, reader.folder]
    sizes = [folder.size() for folder in folders]
    for pair in ask_in_turns(writer.server, reader.server, prompts, OUTPUT_TOKENS):
        assert_same(pair.ours.answer, pair.plain.answer)
        assert pair.ours.answer.cached_tokens == pair.plain.answer.cached_tokens == 0
        pairs.append(pair)
        for folder, size in zip(folders, sizes, strict=True):  # what they do afterwards, they have done
            folder.wait_for_size(size + len(pairs) * reader.stored_bytes(prompts[0]))
    ratio = Ratio.of_first_tokens(pairs[1:])
    assert ratio.within(BAR) is not False, (ratio, Ratio.of_processor_time(pairs[1:]))


def test_what_a_dead_bucket_holds_is_computed_until_it_is_back(
    writer: Served, reader: Served, bucket: SeaweedServer
):
    """The bucket was killed by the test before."""
    reader.attach(over_bucket(bucket, deadlines=PATIENT, breaker={"failures": 2, "cooldown": 60.0}))
    with reader.unserved() as reasons:
        answers = [reader.again(writer.first_ids) for _ in range(3)]
    for answer in answers:
        assert_same(answer, writer.first)
        assert answer.cached_tokens == 0
    assert reasons.keys() == {"tier_error", "breaker_open"}
    bucket.start()
    reader.attach(over_bucket(bucket, deadlines=PATIENT))
    wanted = full_tokens(writer.first_ids, reader.page_size)
    wait_until(lambda: reader.again(writer.first_ids).cached_tokens == wanted, "the bucket to be used again")
    reader.assert_restored(reader.again(writer.first_ids), writer.first, writer.first_ids)
