"""Where requests go, and what becomes of them when engines fail."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.config import ConfigError
from sgkv.control.places import Device
from sgkv.keys import hash_pages
from sgkv.router.memory import Sent
from sgkv.router.prompts import PromptReader
from sgkv.router.scoring import Load, seconds
from sgkv.router.settings import Costs, load_settings
from sgkv.testing.waiting import wait_until
from tests.control.conftest import HASHES as CHAIN
from tests.control.conftest import TOKENS as PROMPT
from tests.control.conftest import came, facts, report, serving, token_of
from tests.router.conftest import PAGE

pytestmark = pytest.mark.slow


def prompt(seed: int, pages: int = 8) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(1000) for _ in range(pages * PAGE)]


def test_a_conversation_stays_where_it_began_and_others_go_elsewhere(make_router) -> None:
    router = make_router(2)
    homes = {seed: router.served(prompt(seed)) for seed in range(6)}
    assert set(homes.values()) == {"engine0", "engine1"}
    for seed, home in homes.items():
        assert router.served(prompt(seed) + prompt(seed + 100)) == home


def test_an_answer_is_the_engines_byte_for_byte(make_router) -> None:
    router = make_router(1)
    answer = router.post({"prompt": prompt(1), "stream": True})
    assert answer.text == "".join(f"data: engine0 {number}\n\n" for number in range(3))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert router.engines[0].seen == [{"prompt": prompt(1), "stream": True}]
    assert httpx.get(f"{router.url}/v1/models?a=1&b=%20c").json() == {
        "from": "engine0",
        "query": "a=1&b=%20c",
    }


def test_round_robin_takes_turns(make_router) -> None:
    router = make_router(3, policy="round_robin")
    assert len({router.served(prompt(1)) for _ in range(3)}) == 3


def test_a_busy_engine_is_passed_over_even_for_its_own_prompts(make_router) -> None:
    router = make_router(2, costs={"prefill": 1000.0})
    home = router.served(prompt(1))
    engine = next(one for one in router.engines if one.name == home)
    engine.pause = 2.0
    with ThreadPoolExecutor(4) as clients:
        waiting = [clients.submit(router.served, prompt(1) + prompt(seed, 40)) for seed in range(2, 5)]
        assert {one.result() for one in waiting} == {"engine0", "engine1"}
    assert [(one["running"], one["waiting_tokens"]) for one in router.status()] == [(0, 0), (0, 0)]


def test_an_engine_that_is_gone_or_full_is_not_the_clients_trouble(make_router) -> None:
    router = make_router(2)
    homes = {seed: router.served(prompt(seed)) for seed in range(4)}
    router.engines[0].status = 503
    assert {router.served(prompt(seed)) for seed in homes} == {"engine1"}
    wait_until(lambda: not router.status()[0]["healthy"], "the engine to be seen ill", 10)
    router.engines[0].status = 200
    wait_until(lambda: router.status()[0]["healthy"], "the engine to be seen well", 10)


def test_an_engines_own_refusal_is_passed_on(make_router) -> None:
    router = make_router(2)
    for engine in router.engines:
        engine.status = 400
    assert router.post({"prompt": prompt(1)}).status_code == 400


def test_with_no_engine_left_the_answer_says_so(make_router) -> None:
    router = make_router(2)
    for engine in router.engines:
        engine.status = 503
    answer = router.post({"prompt": prompt(1)})
    assert answer.status_code == 503
    assert "engines can be reached" in answer.json()["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'{"prompt": [-1]}', b'{"prompt": {"a": 1}}'])
def test_what_the_router_does_not_understand_it_passes_on(make_router, body: bytes) -> None:
    router = make_router(1)
    assert router.post(body).text.startswith("data: engine0")


def test_a_huge_body_is_refused(make_router) -> None:
    router = make_router(1, max_body=1000)
    assert router.post({"prompt": "x" * 1000}).status_code == 413
    assert not router.engines[0].seen


def test_more_requests_than_there_may_be_are_refused(make_router) -> None:
    router = make_router(1, max_requests=1)
    router.engines[0].pause = 1.0
    with ThreadPoolExecutor(1) as clients:
        first = clients.submit(router.post, {"prompt": prompt(1)})
        wait_until(lambda: router.status()[0]["running"] == 1, "the first to be under way", 10)
        assert router.post({"prompt": prompt(2)}).status_code == 429
        assert first.result().status_code == 200


def test_the_controller_knows_better(make_router) -> None:
    """`engine1` has the prompt by the controller's account, and was never sent it by this router."""
    with serving() as controller:
        known = facts("a" * 32, "team-a")
        controller.report(report("engine0", changes=[], namespaces=[known]))
        controller.report(report("engine1", changes=[came("a" * 32, 8)], namespaces=[known]))
        told = {"url": controller.url, "token": token_of("reader"), "timeout": 5.0}
        router = make_router(2, controller=told)
        assert len(CHAIN) == 8
        for extra in range(4):
            assert router.served([*PROMPT, *prompt(extra)]) == "engine1"


def test_a_controller_that_is_away_costs_its_timeout_once(make_router) -> None:
    told = {"url": "http://127.0.0.1:9", "token": token_of("reader"), "timeout": 0.2}
    router = make_router(2, controller=told)
    assert len({router.served(prompt(1)) for _ in range(4)}) == 1


def test_prompts_are_read_as_engines_read_them() -> None:
    reader = PromptReader(PAGE)
    tokens = prompt(1)
    for body in ({"prompt": tokens}, {"input_ids": tokens}, {"prompt": [tokens, [1]]}):
        pages = reader.read(str(body).replace("'", '"').encode())
        assert (pages.hashes, pages.tokens, pages.exact) == (hash_pages(tokens, PAGE), len(tokens), True)
    text = reader.read(b'{"messages": [{"role": "user", "content": "%s"}]}' % (b"word " * 100))
    assert text.hashes
    assert not text.exact


class Tokenizer:
    """As `transformers` has them; a real one is in `test_fleet.py`."""

    chat_template = "x"

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def apply_chat_template(self, messages, **options) -> dict[str, list[int]]:
        return {"input_ids": self.encode("".join(one["content"] for one in messages))}


def test_text_becomes_tokens_where_there_is_a_tokenizer() -> None:
    reader = PromptReader(4, Tokenizer())
    expected = hash_pages([ord(letter) for letter in "abcdefgh"], 4)
    assert reader.read(b'{"prompt": "abcdefgh"}').hashes == expected
    assert reader.read(b'{"messages": [{"content": "abcd"}, {"content": "efgh"}]}').hashes == expected


@given(
    st.integers(0, 100_000),
    st.dictionaries(st.sampled_from(list(Device)), st.integers(0, 100_000)),
    st.sampled_from(list(Device)),
    st.integers(1, 10_000),
)
def test_more_of_a_prompt_is_never_slower_and_nearer_never_worse(tokens, held, device, more) -> None:
    costs, load = Costs(), Load(500, 3)
    before = seconds(costs, load, tokens, held)
    assert seconds(costs, load, tokens, {**held, device: held.get(device, 0) + more}) <= before + 1e-9
    assert seconds(costs, load, tokens, {**held, Device.GPU: max(held.values(), default=0)}) <= before + 1e-9
    assert seconds(costs, Load(load.tokens + more, 3), tokens, held) > before


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.sampled_from("abcdef"), max_size=6)), max_size=12))
def test_the_routers_memory_is_that_of_plain_sets(sent) -> None:
    memory, known = Sent(1000), [set(), set(), set()]
    for engine, pages in sent:
        memory.note(engine, pages)
        known[engine] |= set(pages)
    for asked in ("abc", "fed", ""):
        runs = [next((n for n, page in enumerate(asked) if page not in own), len(asked)) for own in known]
        assert memory.leading(list(asked), 3) == runs
    memory.forget(1)
    assert memory.leading(["a"], 3)[1] == 0


def test_there_is_an_end_to_what_is_remembered() -> None:
    memory = Sent(4)
    memory.note(0, list("abcdef"))
    assert memory.leading(list("abcdef"), 1) == [4], "the beginning of a prompt is worth most"


def test_bad_settings_name_the_field(tmp_path) -> None:
    file = tmp_path / "router.yaml"
    file.write_text("engines: [{url: 'http://a:1'}, {url: 'ftp://b'}]\npolicys: cache\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert "engines.1.url" in str(caught.value) or "engines[1].url" in str(caught.value)
    assert "policy" in str(caught.value)
