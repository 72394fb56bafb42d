"""Page hashes equal SGLang's; keys are opaque, stable and disjoint."""

import subprocess
import sys
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.keys import (
    chunk_keys,
    hash_pages,
    namespace_seed,
    packed_hashes,
    page_keys,
)

GOLDEN = [
    "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72",
    "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6",
]
TOKENS = st.lists(st.integers(0, 2**32 - 1) | st.integers(2**32, 2**63 - 1), max_size=40)


def test_golden_vectors():
    assert hash_pages(range(1, 11), 4) == GOLDEN
    assert hash_pages([9, 10], 2, prior=GOLDEN[1]) == [
        "6dc571acd2ccb712fb7a8b13854443ded3fba409ddd9aa84849d3840c1547ca3"
    ]


def test_golden_namespace_seeds():
    assert namespace_seed(None, None) is None
    assert namespace_seed(None, "t1") == "df1292b40b48d644e7e2b6b30c7b5a35344cae12a66fad2953dc3281cd934ac3"
    assert (
        namespace_seed("lora-a", None) == "407c773a7c02b33bd4a62af6bf5fc77997c2c8067811ecf2b39e3839c3f4284b"
    )


def test_a_salt_separates_every_page_of_a_sequence():
    salted = hash_pages(range(64), 16, prior=namespace_seed(None, "t1"))
    assert not set(salted) & set(hash_pages(range(64), 16))


def test_absent_and_empty_and_joined_parts_differ():
    seeds = [namespace_seed(a, b) for a, b in [("", None), (None, ""), ("", ""), ("ab", "c"), ("a", "bc")]]
    assert len(set(seeds)) == len(seeds)


@given(TOKENS, st.sampled_from([1, 2, 4, 7, 64]))
def test_equal_to_the_installed_sglang(tokens, page):
    from sglang.srt.mem_cache.utils import get_hash_str

    full = len(tokens) // page * page
    expected = get_hash_str(tokens[:full], None, page_size=page) if full else []
    assert hash_pages(tokens, page) == expected


def test_equal_to_the_installed_sglang_from_a_namespace_seed():
    from sglang.srt.mem_cache.utils import get_hash_str, storage_namespace_seed

    seed = namespace_seed("lora", "salt")
    assert seed == storage_namespace_seed("lora", "salt")
    assert hash_pages(range(128), 64, prior=seed) == get_hash_str(list(range(128)), seed, page_size=64)


@given(TOKENS, st.sampled_from([1, 4]))
def test_arrays_of_wide_integers_hash_like_lists(tokens, page):
    assert hash_pages(array("q", tokens), page) == hash_pages(tokens, page)


@given(TOKENS, st.integers(1, 8), st.integers(0, 5))
def test_a_chain_continues_from_any_page(tokens, page, cut):
    whole = hash_pages(tokens, page)
    cut = min(cut, len(whole))
    prior = whole[cut - 1] if cut else None
    assert hash_pages(tokens[cut * page :], page, prior=prior) == whole[cut:]


def test_the_same_in_every_process():
    code = "from sgkv.keys import *; print(chunk_keys('ns', hash_pages(range(8), 4)))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert outputs == {f"{chunk_keys('ns', hash_pages(range(8), 4))}\n"}


def test_a_page_and_a_chunk_never_share_a_key():
    assert not set(chunk_keys("ns", GOLDEN)) & set(page_keys("ns", GOLDEN))


def test_keys_spell_their_namespace_and_shard():
    assert chunk_keys("ns", GOLDEN[:1]) == [f"ns/c/cf/{GOLDEN[0]}"]


def test_packed_hashes_are_their_raw_bytes():
    assert packed_hashes(GOLDEN) == b"".join(map(bytes.fromhex, GOLDEN))


def test_a_page_holds_at_least_one_token():
    with pytest.raises(ValueError, match="page_tokens"):
        hash_pages([1, 2], 0)
