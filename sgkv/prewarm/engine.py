"""A running OpenAI-compatible server, as far as prewarming needs it. httpx is imported when one is made.

Facts of SGLang 0.5.23: /server_info shows the scheduler's flags, /model_info model path and weight
version; with priority scheduling smaller numbers are served first only where
`schedule_low_priority_values_first` says so; a request that is thrown out of a full queue, or by one of
higher priority, gets 503; `usage.prompt_tokens_details` needs ``--enable-cache-report``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import httpx

_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which the same request may succeed."""
_JSON = {"Content-Type": "application/json"}
_LOWEST = 2**31 - 1
_SHOWN = 300


class AddressError(ValueError):
    """What was given is no address of a server."""


class EngineError(Exception):
    """The server does not say what it serves."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a server says of itself."""

    model: str
    """The name to ask for."""
    identity: str
    """Changes when other weights are served, as far as the server tells."""
    lowest_priority: int | None
    """None where its scheduler takes none, and serves in the order of arrival."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request ended."""

    ok: bool
    later: bool = False
    """Not now: the same may succeed another time."""
    retry_after: float = 0.0
    """Seconds, where the server named them."""
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    """None where the server does not report them."""
    why: str = ""


class Engine:
    """Speaks to one server. Any thread."""

    def __init__(self, url: str, *, api_key: str | None = None, timeout: float = 600.0) -> None:
        """`timeout` is for one answer, in seconds. Raises AddressError, and ImportError without httpx."""
        try:
            import httpx
        except ImportError as error:
            raise ImportError("computing needs httpx: pip install 'sgkv[prewarm]'") from error

        self._errors: type[Exception] = httpx.HTTPError
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx.Limits(max_connections=None)
        address = url.rstrip("/").removesuffix("/v1")
        if not address.startswith(("http://", "https://")):
            raise AddressError(f"{url!r} is no address: write http://HOST:PORT")
        try:
            self._http = httpx.Client(
                base_url=address, headers=headers, timeout=timeout, limits=limits, trust_env=False
            )
        except httpx.InvalidURL as error:
            raise AddressError(f"{url!r} is no address: {error}") from error

    def facts(self) -> EngineFacts:
        """Ask the server. Raises EngineError where it does not list its model."""
        models = self._get("/v1/models")
        try:
            model = str(models["data"][0]["id"])
        except (KeyError, IndexError, TypeError) as error:
            raise EngineError(f"{self._http.base_url} lists no model at /v1/models") from error
        info, server = self._get("/model_info") or {}, self._get("/server_info") or {}
        identity = "\n".join(str(info.get(key, "")) for key in ("model_path", "weight_version"))
        return EngineFacts(model, f"{model}\n{identity}", _lowest_priority(server))

    def post(self, endpoint: str, body: Mapping[str, object]) -> Answer:
        """Send one request and wait for its answer, whatever that is."""
        # In ASCII: what a file escapes need not be text that can be encoded, such as half a character.
        content = json.dumps(body)
        try:
            answer = self._http.post(endpoint, content=content, headers=_JSON)
        except self._errors as error:
            return Answer(ok=False, later=True, why=f"{type(error).__name__}: {error}"[:_SHOWN])
        if answer.is_success:
            return _answered(answer)
        why = f"{answer.status_code} {answer.text}"[:_SHOWN]
        later = answer.status_code in _LATER
        return Answer(ok=False, later=later, retry_after=_seconds(answer.headers), why=why)

    def written_bytes(self) -> dict[str, int] | None:
        """Bytes that sgkv in the server has written, by tier; None where the server shows no metrics."""
        from prometheus_client.parser import text_string_to_metric_families

        try:
            answer = self._http.get("/metrics")
            if not answer.is_success:
                return None
            families = list(text_string_to_metric_families(answer.text))
        except (self._errors, ValueError):
            return None
        written: dict[str, int] = {}
        for sample in (sample for family in families for sample in family.samples):
            if sample.name == "sgkv_written_bytes_total":
                tier = sample.labels.get("tier", "")
                written[tier] = written.get(tier, 0) + int(sample.value)
        return written

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _get(self, path: str) -> Any:
        """The JSON there; None where there is none."""
        try:
            answer = self._http.get(path)
            return answer.json() if answer.is_success else None
        except (self._errors, ValueError):
            return None


def _lowest_priority(server: Mapping[str, Any]) -> int | None:
    if not server.get("enable_priority_scheduling"):
        return None
    return _LOWEST if server.get("schedule_low_priority_values_first") else -_LOWEST


def _answered(answer: httpx.Response) -> Answer:
    try:
        content = answer.json()
        aborted = any(choice.get("finish_reason") == "abort" for choice in content["choices"])
        usage = content["usage"]
        details = usage.get("prompt_tokens_details") or {}
        tokens, cached = int(usage["prompt_tokens"]), details.get("cached_tokens")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Answer(ok=False, why=f"an answer that is none of OpenAI's: {error!r}"[:_SHOWN])
    if aborted:
        return Answer(ok=False, later=True, why="aborted by the server")
    return Answer(ok=True, prompt_tokens=tokens, cached_tokens=cached)


def _seconds(headers: httpx.Headers) -> float:
    """Of Retry-After, where it is a number; a date is not worth parsing, we wait anyway."""
    text = headers.get("retry-after", "")
    return float(text) if text.isdecimal() and len(text) < 6 else 0.0
