"""Page hashing of a long prompt, beside one SHA-256 over the same bytes and SGLang's native extension."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from random import Random

from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.sglang.ready import require_sglang
from sgkv.bench.timing import interleave
from sgkv.keys import hash_pages

_TOKENS = 102_400
_PAGE = 64
_VOCABULARY = 150_000

Hash = Callable[[Sequence[int], None, int], list[str]]


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """``sha256_102400``: ids in a list, as vLLM has them; ``..._array``: in the array SGLang keeps."""
    random = Random(0)  # noqa: S311 - token ids, not secrets
    ids = [random.randrange(_VOCABULARY) for _ in range(effort.of(_TOKENS, least=_PAGE))]
    peer = _sglang_hash()
    yield _record("sha256_102400", ids, peer, effort)
    yield _record("sha256_102400_array", array("q", ids), peer, effort)


def _record(case: str, ids: Sequence[int], peer: Hash | None, effort: Effort) -> Record:
    plain = array("I", ids).tobytes()
    contenders: dict[str, Callable[[], object]] = {
        "sgkv": lambda: hash_pages(ids, _PAGE),
        "raw": lambda: sha256(plain).digest(),
    }
    if peer is not None:
        if peer(ids, None, _PAGE) != hash_pages(ids, _PAGE):
            raise BenchError("SGLang's page hashes are not ours")
        contenders["peer"] = lambda: peer(ids, None, _PAGE)
    series = interleave(contenders, effort.times(4))
    ours = series["sgkv"]
    return Record(
        "hash",
        case,
        ours.wall * 1e3,
        "ms",
        ratio_to_raw=ours.speed_over(series["raw"]),
        cpu_ratio_to_raw=ours.cpu_over(series["raw"]),
        ratio_to_peer=ours.speed_over(series["peer"]) if peer else None,
        bars=(Bar("value", "<=", 3, "ms"),),
    )


def _sglang_hash() -> Hash | None:
    """SGLang's hash, compiled if it was not yet; None without SGLang, or without a compiler for it."""
    try:
        require_sglang()
        from sglang.srt.mem_cache.utils import get_hash_str

        get_hash_str([0] * _PAGE, None, _PAGE)
    except (BenchError, RuntimeError):
        return None
    hash_str: Hash = get_hash_str
    return hash_str
