"""A bucket that fails, hangs or lies under a real server: right answers, and the reason counted.

The bucket is moto's behind our own stand-in for S3 Express and its faults, for which real servers cannot
be asked; one that is killed is real, in test_bucket.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event

import pytest

from sgkv.backends.s3.client import open_client, open_session
from sgkv.testing.client import Generation
from sgkv.testing.s3 import DIRECTORY_BUCKET, tier_settings
from sgkv.testing.s3.double import S3Double
from sgkv.testing.s3.mischief import Trouble
from sgkv.testing.waiting import wait_until
from tests.e2e.buckets import stored_bytes
from tests.e2e.rig import PATIENT, Settings, assert_same, full_tokens, over, prompt
from tests.e2e.served import Served

pytestmark = pytest.mark.server

PREFIX = "fleet/"
IDS = prompt(90, 900)
"""Three chunks and two pages; the answer completes none."""
SILENCE = {"contains": 0.25, "get": 1.0, "put": 1.0}
OPENS = {"failures": 2, "cooldown": 60.0}

Choose = Callable[[str, str], Trouble | None]


@pytest.fixture(scope="module")
def double() -> Iterator[S3Double]:
    with S3Double() as server:
        yield server


@pytest.fixture(scope="module")
def cold(llama: Served, double: S3Double) -> Generation:
    """The answer to `IDS`, whose pages are in the bucket afterwards."""
    llama.attach(store(double))
    answer = llama.again(IDS)
    assert answer.cached_tokens == 0
    wait_until(lambda: in_bucket(double) >= llama.stored_bytes(IDS), "the bucket to have it")
    return answer


@pytest.fixture(autouse=True)
def well_again(double: S3Double) -> Iterator[None]:
    yield
    double.express.skew = 0.0
    double.mischief.choose = lambda method, path: None


def store(double: S3Double, **s3: object) -> Settings:
    """Nothing but the bucket, of whose contents nothing is known."""
    options = {"prefix": PREFIX, "list_every": None, "examine": False, "deadlines": PATIENT, **s3}
    return over(tier_settings(double.endpoint, DIRECTORY_BUCKET, **options))


def in_bucket(double: S3Double) -> int:
    return stored_bytes(double.options(DIRECTORY_BUCKET, prefix=PREFIX, list_seconds=None))


def reads(trouble: Trouble) -> Choose:
    """For every read of an object; it is found all the same."""
    return lambda method, path: trouble if method == "GET" and PREFIX in path else None


def everything(trouble: Trouble) -> Choose:
    return lambda method, path: trouble


@contextmanager
def computed(llama: Served, cold: Generation, reason: str, *, but: int = 0) -> Iterator[None]:
    """What the block changes about the server costs all hits `but` so many tokens, for this reason."""
    with llama.unserved() as reasons:
        yield
        answer = llama.again(IDS)
    assert_same(answer, cold)
    assert answer.cached_tokens == but
    assert reasons.keys() == {reason}


@pytest.mark.parametrize("trouble", [Trouble(status=500), Trouble(half=True)], ids=["500", "half a body"])
def test_reads_that_fail(trouble: Trouble, llama: Served, double: S3Double, cold: Generation):
    llama.attach(store(double))
    with computed(llama, cold, "tier_error"):
        double.mischief.choose = reads(trouble)


@pytest.mark.parametrize(
    "trouble",
    [Trouble(status=503, code="SlowDown"), Trouble(status=403, code="AccessDenied")],
    ids=["503", "403"],
)
def test_a_storm_opens_the_breaker(trouble: Trouble, llama: Served, double: S3Double, cold: Generation):
    llama.attach(store(double, breaker=OPENS))
    double.mischief.choose = everything(trouble)
    with llama.unserved() as reasons:
        answers = [llama.again(IDS) for _ in range(2)]
    for answer in answers:
        assert_same(answer, cold)
        assert answer.cached_tokens == 0
    assert reasons.keys() == {"tier_error", "breaker_open"}


def test_silence(llama: Served, double: S3Double, cold: Generation):
    llama.attach(store(double, deadlines=SILENCE))
    speak = Event()
    with computed(llama, cold, "timeout"):
        double.mischief.choose = everything(Trouble(until=speak))
    speak.set()


def test_a_clock_that_is_an_hour_ahead(llama: Served, double: S3Double, cold: Generation):
    """The server's: every session has ended for it, and no request for another is taken."""
    llama.attach(store(double))
    with computed(llama, cold, "tier_error"):
        double.express.skew = 3600.0


def test_a_wrong_etag_is_no_reason_to_compute_what_is_right(
    llama: Served, double: S3Double, cold: Generation
):
    """Another one for every answer. Chunks have checksums of their own, and no two answers make one here."""
    llama.attach(store(double))
    number = count()
    double.mischief.choose = lambda method, path: Trouble(etag=f'"{next(number)}"')
    llama.assert_restored(llama.again(IDS), cold, IDS)


def test_the_bytes_of_another_object_are_not_served_and_written_anew(
    llama: Served, double: S3Double, cold: Generation
):
    overwrite_chunks(double)
    llama.attach(store(double))
    with llama.unserved() as reasons:
        answer = llama.again(IDS)
    assert_same(answer, cold)
    assert reasons.keys() == {"foreign"}
    wait_until(lambda: in_bucket(double) >= llama.stored_bytes(IDS), "the bucket to have it again")


def test_flipped_bits_are_not_served(llama: Served, double: S3Double, cold: Generation):
    """In the middle of every object, so in the second of the first chunk's four pages."""
    llama.attach(store(double))
    with computed(llama, cold, "corrupt", but=64):
        double.mischief.choose = reads(Trouble(flip=True))


def test_when_it_is_over_everything_is_served_again(llama: Served, double: S3Double, cold: Generation):
    """Once the breaker lets it, and what was taken out of use has been written anew."""
    llama.attach(store(double, breaker={"failures": 2, "cooldown": 0.2}))
    double.mischief.choose = everything(Trouble(status=503, code="SlowDown"))
    assert_same(llama.again(IDS), cold)
    double.mischief.choose = lambda method, path: None
    wait_until(lambda: llama.again(IDS).cached_tokens == full_tokens(IDS, llama.page_size), "all of it")
    llama.assert_restored(llama.again(IDS), cold, IDS)


def overwrite_chunks(double: S3Double) -> None:
    """Put the bytes of one chunk in the place of all the others."""
    options = double.options(DIRECTORY_BUCKET)
    client = open_client(open_session(options), options, attempts=1, connections=1)
    listed = client.list_objects_v2(Bucket=DIRECTORY_BUCKET, Prefix=PREFIX)["Contents"]
    one, *others = [row["Key"] for row in listed if "/c/" in row["Key"]]
    body = client.get_object(Bucket=DIRECTORY_BUCKET, Key=one)["Body"].read()
    for key in others:
        client.put_object(Bucket=DIRECTORY_BUCKET, Key=key, Body=body)
    client.close()
