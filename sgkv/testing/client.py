"""A client of SGLang's HTTP API that measures what tests and the demo look at."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

ADMIN_KEY = "local"
"""``--admin-api-key`` of every server started here; SGLang guards its storage endpoints by it."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One answered prompt."""

    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each output token, as the server computed them."""
    text: str
    prompt_tokens: int
    cached_tokens: int
    cached_by_tier: Mapping[str, int]
    """SGLang's ``cached_tokens_details``: device, host and storage."""
    ttft_s: float
    """From sending the request to receiving its first token."""
    e2e_s: float

    def same_output(self, other: Generation) -> bool:
        """Whether ids and log-probabilities are the same, bit for bit."""
        return (self.output_ids, self.logprobs) == (other.output_ids, other.logprobs)


class SglangClient:
    """Speaks to one server; safe to use from several threads."""

    def __init__(self, url: str, timeout: float = 120.0) -> None:
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        self._http = httpx.Client(base_url=url, timeout=timeout, headers=headers, trust_env=False)

    def generate(
        self,
        input_ids: Sequence[int] | None = None,
        max_new_tokens: int = 16,
        *,
        text: str | None = None,
        sampling: Mapping[str, object] | None = None,
        on_event: Callable[[], object] = lambda: None,
        **request: object,
    ) -> Generation:
        """Answer `input_ids` or `text`; greedy and never ending early unless `sampling` says so.

        `on_event` is called whenever tokens have arrived. `request` adds fields to the body of /generate.
        What the server refuses or fails to do raises `RuntimeError` with its words.
        """
        prompt: dict[str, object] = {"text": text} if input_ids is None else {"input_ids": list(input_ids)}
        chosen = {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True, **(sampling or {})}
        wanted = {"sampling_params": chosen, "return_logprob": True, "stream": True}
        began = time.perf_counter()
        arrivals = []
        for event in self._stream("/generate", {**prompt, **wanted, **request}):
            arrivals.append((time.perf_counter() - began, event))
            on_event()
        return _generation(arrivals)

    def flush(self, timeout: float = 30.0) -> None:
        """Drop device and host cache, storage stays; the server waits for running requests to end."""
        self.admin("POST", f"/flush_cache?timeout={timeout}")

    def admin(self, method: str, path: str, json: object = None) -> Any:
        """Call an endpoint; the decoded JSON, or the text where it is none. Errors raise."""
        answer = self._http.request(method, path, json=json)
        if answer.is_error:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text[:2000]}")
        kind = answer.headers.get("content-type", "")
        return answer.json() if kind.startswith("application/json") else answer.text

    def update_weights(
        self, model: str, *, flush_cache: bool = True, weight_version: str | None = None
    ) -> Any:
        """Load other weights of the same shape into the running server."""
        body = {"model_path": model, "flush_cache": flush_cache, "weight_version": weight_version}
        return self.admin("POST", "/update_weights_from_disk", body)

    def metrics(self) -> list[Sample]:
        """Every sample of /metrics; needs a server started with metrics."""
        text = self.admin("GET", "/metrics")
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples called `name` that carry `labels`; 0 where there is none."""
        return sum(
            sample.value
            for sample in self.metrics()
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def healthy(self) -> bool:
        """Whether /health answers 200 now."""
        try:
            return self._http.get("/health").is_success
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _stream(self, path: str, body: Mapping[str, object]) -> Iterator[Any]:
        """The events of a server-sent stream as they arrive."""
        with self._http.stream("POST", path, json=body) as answer:
            if answer.is_error:
                raise RuntimeError(f"{path}: {answer.status_code} {answer.read().decode()[:2000]}")
            for line in answer.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line.removeprefix("data: "))


def _generation(arrivals: list[tuple[float, Any]]) -> Generation:
    """`arrivals`: (seconds, event); every event of SGLang's stream holds all that came before it."""
    ttft, e2e, last = arrivals[0][0], *arrivals[-1]
    if "error" in last:
        raise RuntimeError(f"/generate: {last['error']}")
    meta = last["meta_info"]
    details = meta.get("cached_tokens_details") or {}
    return Generation(
        output_ids=tuple(last["output_ids"]),
        logprobs=tuple(entry[0] for entry in meta["output_token_logprobs"]),
        text=last["text"],
        prompt_tokens=meta["prompt_tokens"],
        cached_tokens=meta["cached_tokens"],
        cached_by_tier={tier: count for tier, count in details.items() if isinstance(count, int)},
        ttft_s=ttft,
        e2e_s=e2e,
    )
