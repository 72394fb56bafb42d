"""Answers of either engine in one form, and how far two of them are apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sgkv.testing.server import SglangServer
from sgkv.testing.vllm import VllmEngine

OUTPUT_TOKENS = 16
MARGIN_NAT = 0.3
"""In 16 bits: where a reader's own two best tokens are further apart, its choice must not change."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answered prompt."""

    output_ids: Sequence[int]
    logprobs: Sequence[float]
    gaps: Sequence[float]
    """Between the best and the second best token at each position, in nat."""
    cached_tokens: int


Ask = Callable[[Sequence[int], str | None], Reply]
"""Answer a prompt under a cache salt."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Answers from another engine's KV beside the reader's own."""

    prompts: int
    cached_tokens: int
    """The least of all prompts."""
    equal_outputs: int
    largest_difference: float
    """Of a log-probability, up to the first token that differs."""
    changed_past_margin: int
    """Tokens that changed although the reader was sure of them."""


def ask_vllm(engine: VllmEngine) -> Ask:
    """Greedy answers of a vLLM engine."""

    def ask(prompt: Sequence[int], salt: str | None) -> Reply:
        answer = engine.one(prompt, OUTPUT_TOKENS, salt=salt)
        return Reply(answer.output_ids, answer.logprobs, answer.gaps, answer.cached_tokens)

    return ask


def ask_sglang(server: SglangServer) -> Ask:
    """Greedy answers of an SGLang server."""

    def ask(prompt: Sequence[int], salt: str | None) -> Reply:
        body = {
            "input_ids": list(prompt),
            "sampling_params": {"temperature": 0, "max_new_tokens": OUTPUT_TOKENS, "ignore_eos": True},
            "return_logprob": True,
            "top_logprobs_num": 2,
            **({"cache_salt": salt} if salt else {}),
        }
        answer = server.admin("POST", "/generate", body)
        meta = answer["meta_info"]
        return Reply(
            answer["output_ids"],
            [entry[0] for entry in meta["output_token_logprobs"]],
            [best[0] - second[0] for best, second in meta["output_top_logprobs"]],
            meta["cached_tokens"],
        )

    return ask


def compare(prompts: Sequence[Sequence[int]], ask: Ask, reference: str = "reference") -> Comparison:
    """Ask each prompt twice: under a cache salt that finds nothing, and as it was stored.

    Raises RuntimeError where the salt `reference` was used for the same prompts before.
    """
    own = [ask(prompt, reference) for prompt in prompts]
    if cached := max(reply.cached_tokens for reply in own):
        raise RuntimeError(f"a reference answer was not computed: {cached} tokens came from a cache")
    shared = [ask(prompt, None) for prompt in prompts]
    pairs = list(zip(shared, own, strict=True))
    return Comparison(
        prompts=len(prompts),
        cached_tokens=min(reply.cached_tokens for reply in shared),
        equal_outputs=sum(one.output_ids == other.output_ids for one, other in pairs),
        largest_difference=max(_difference(one, other) for one, other in pairs),
        changed_past_margin=sum(_past_margin(one, other) for one, other in pairs),
    )


def _difference(reply: Reply, own: Reply) -> float:
    end = _split(reply, own)
    return max(
        (abs(a - b) for a, b in zip(reply.logprobs[:end], own.logprobs[:end], strict=True)), default=0.0
    )


def _past_margin(reply: Reply, own: Reply) -> bool:
    """Whether the first token that differs is one that the reader was sure of; later ones follow from it."""
    at = _split(reply, own)
    return at < len(own.output_ids) and own.gaps[at] > MARGIN_NAT


def _split(reply: Reply, own: Reply) -> int:
    """How many tokens are the same before the first that differs."""
    pairs = enumerate(zip(reply.output_ids, own.output_ids, strict=True))
    return next((at for at, (one, other) in pairs if one != other), len(own.output_ids))
