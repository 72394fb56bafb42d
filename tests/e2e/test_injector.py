"""SGLang's own injector of random delays and failures between its cache and the store."""

from collections.abc import Iterator

import pytest

from tests.e2e.rig import Folder, assert_same, prompt, settings
from tests.e2e.served import MakeServer, Served

pytestmark = pytest.mark.server

SEEDS, ROUNDS = range(80, 84), 6


@pytest.fixture
def served(make_server: MakeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = Folder(tmp_path_factory.mktemp("injected") / "kv")
    injector = {
        "SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY": "0.05",
        "SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE": "0.3",
    }
    server = make_server("llama", storage_config=settings(folder), env=injector)
    with server:
        yield Served(server, folder)
        server.kill()


def test_answers_stay_right_whatever_fails_at_random(served: Served):
    assert "HiCache storage test injector enabled" in served.server.log_text()
    plain = {seed: served.plain(prompt(seed)) for seed in SEEDS}
    served.attach(settings(served.folder))
    cached = []
    for _ in range(ROUNDS):
        for seed in SEEDS:
            answer = served.again(prompt(seed))
            assert_same(answer, plain[seed])
            cached.append(answer.cached_tokens)
    assert 0 in cached
    assert 1984 in cached
    assert served.server.healthy()
    assert not served.folder.quarantined()
    assert not served.samples("internal_errors", "")
