"""Requests of a trace: when they came, how long they were, which blocks they share with others.

The format is that of the traces published with Mooncake (Qin et al., FAST 2025; FAST25-release/traces in
kvcache-ai/Mooncake): a JSON object a line with `timestamp` (ms), `input_length`, `output_length` (tokens) and
`hash_ids`, one for each block of 512 tokens, where equal ids mean equal tokens from the start on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCK_TOKENS = 512


class TraceError(ValueError):
    """A trace that cannot be read, with the line."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt."""

    at: float
    """Seconds since the trace began."""
    tokens: int
    output: int
    """Tokens generated; they are no part of `blocks`."""
    blocks: tuple[str, ...]
    """Names of its blocks; the last may be shorter than the others."""

    def sizes(self) -> list[int]:
        """Tokens of each block."""
        whole = len(self.blocks) - 1
        return [BLOCK_TOKENS] * whole + [self.tokens - whole * BLOCK_TOKENS]


def read_trace(path: Path) -> list[Request]:
    """All requests, by time. Raises TraceError naming the line that is wrong, OSError without a file."""
    requests = [_request(line, f"{path}:{number}") for number, line in _lines(path)]
    if not requests:
        raise TraceError(f"{path}: there is no request in it")
    return sorted(requests, key=lambda request: request.at)


def unique_tokens(requests: Iterable[Request]) -> int:
    """Tokens of all blocks, each counted once."""
    sizes: dict[str, int] = {}
    for request in requests:
        sizes.update(zip(request.blocks, request.sizes(), strict=True))
    return sum(sizes.values())


def _lines(path: Path) -> Sequence[tuple[int, str]]:
    with path.open(encoding="utf-8") as file:
        return [(number, line) for number, line in enumerate(file, 1) if line.strip()]


def _request(line: str, where: str) -> Request:
    try:
        row = json.loads(line)
        blocks = tuple(map(str, row["hash_ids"]))
        request = Request(row["timestamp"] / 1000, row["input_length"], row["output_length"], blocks)
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(
            f"{where}: not a request of a trace ({type(error).__name__}: {error}); a line is an object with "
            "timestamp, input_length, output_length and hash_ids"
        ) from error
    if not blocks or not 0 < request.tokens - BLOCK_TOKENS * (len(blocks) - 1) <= BLOCK_TOKENS:
        raise TraceError(
            f"{where}: {request.tokens} tokens do not make {len(blocks)} blocks of {BLOCK_TOKENS}"
        )
    return request
