"""A prompt of stored documents in a new order, in the reference engine: blended, beside a full prefill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec

from sgkv.backends.deadline import Deadline
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.timing import interleave

_DOCUMENTS, _TOKENS, _QUESTION, _PAGE = 8, 512, 32, 64
_LAYERS, _HIDDEN = 16, 256
_BAR = Bar("ratio_to_raw", ">=", 1 / 0.4, "full prefills a blend")
"""TTFT of at most 0.4 of a full prefill."""
_SECONDS = 60.0


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """``ttft_8x512``: eight documents of 512 tokens from memory, 15 % of them computed anew, and a
    question.
    """
    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise BenchError("torch is not installed (pip install 'sgkv[sglang]')")
    import torch

    from sgkv.blend.blending import Plan, Reused, blend
    from sgkv.blend.engine import Decoder
    from sgkv.blend.segments import documents
    from sgkv.blend.storing import SegmentStore
    from sgkv.config import load, resolve
    from sgkv.identity import Namespace
    from sgkv.store.build import build_store
    from sgkv.testing.models import write_model

    folder = write_model(
        scratch.disk() / "model", "llama", layers=_LAYERS, hidden=_HIDDEN, intermediate_size=768
    )
    model = Decoder.load(folder)
    settings = {"tiers": [{"type": "cpu", "capacity": "1GiB"}], "write_behind": {"tail_delay": 0}}
    with closing(build_store(resolve(load(settings, environ={}).config))) as store, torch.no_grad():
        namespace = Namespace(
            "bench", "bench", "", "bench", "torch", "float32", _PAGE, 256, "kv", "all", "bench"
        )
        segments = SegmentStore(store, namespace, model, "bench")
        source = torch.Generator().manual_seed(1)
        separator = [0, 1]
        size = effort.of(_TOKENS, least=_PAGE) // _PAGE * _PAGE
        texts = [torch.randint(2, 258, (size,), generator=source).tolist() for _ in range(_DOCUMENTS)]
        for text in texts:
            (piece,) = documents([*text, *separator], separator, _PAGE)
            if segments.put(piece, model.prefill(torch.tensor(text))[1], Deadline(_SECONDS)) != size // _PAGE:
                raise BenchError("a document was not stored")
        prompt = [token for text in reversed(texts) for token in (*text, *separator)]
        prompt += torch.randint(2, 258, (_QUESTION,), generator=source).tolist()

        def blended() -> None:
            pieces = []
            for piece in documents(prompt, separator, _PAGE):
                kv = segments.get(piece, Deadline(_SECONDS))
                if kv is None:
                    raise BenchError("a stored document is gone")
                pieces.append(Reused(piece.start, kv))
            blend(model, torch.tensor(prompt), pieces, Plan())

        calls: dict[str, Callable[[], object]] = {
            "sgkv": blended,
            "raw": lambda: model.prefill(torch.tensor(prompt)),
        }
        series = interleave(calls, effort.times(1 / 2))
    yield Record(
        "blend",
        "ttft_8x512",
        series["sgkv"].wall * 1e3,
        "ms",
        ratio_to_raw=series["sgkv"].speed_over(series["raw"]),
        cpu_ratio_to_raw=series["sgkv"].cpu_over(series["raw"]),
        bars=(_BAR,),
    )
