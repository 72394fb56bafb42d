"""Page hashes of a request, made as far as they are needed."""

from sgkv.keys import hash_pages, namespace_seed
from sgkv.vllm.chains import Chains

PAGE = 64


def test_they_are_sglangs_also_for_tokens_that_came_later() -> None:
    tokens = list(range(3 * PAGE))
    chains = Chains(PAGE)
    chains.begin("a", tokens, None)
    chain = chains.of("a")
    assert chain.pages(2) == hash_pages(tokens, PAGE)[:2]
    assert len(chain.pages(5)) == 3
    tokens += range(PAGE)
    assert chain.pages(5) == hash_pages(tokens, PAGE)
    chains.forget("a")
    assert chains.of("a") is None


def test_a_salt_is_part_of_every_hash() -> None:
    chains = Chains(PAGE)
    chains.begin("a", list(range(2 * PAGE)), "salt")
    seed = namespace_seed(None, "salt")
    assert chains.of("a").pages(2) == hash_pages(list(range(2 * PAGE)), PAGE, seed)
