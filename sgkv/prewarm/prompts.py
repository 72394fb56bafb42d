"""Files of prompts and documents, and the requests that are made of them.

A line of JSON is one of: ``{"messages": [...]}``, ``{"prompt": "..."}`` or token ids, ``{"text": "..."}``
(a document, whose other fields are the owner's), a string, or a line of OpenAI's batch format
(``{"url": ..., "body": {...}}``). Everything in it that shapes the prompt is kept: tools, templates,
salts, adapters. What only shapes the answer is not: one token is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
_JSON_LINES = frozenset({".jsonl", ".ndjson"})
_OF_THE_ANSWER = frozenset(
    {
        "best_of",
        "echo",
        "ignore_eos",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "min_tokens",
        "n",
        "priority",
        "return_cached_tokens_details",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "top_logprobs",
        "top_p",
    }
)


class PromptError(ValueError):
    """A file, or a line of one, that holds no prompt."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Where a prompt stands; its text stays in the file until it is sent."""

    path: Path
    offset: int
    size: int
    """Bytes in the file."""
    number: int
    """Line, from 1; 0 for a file that is one document."""

    @property
    def name(self) -> str:
        return f"{self.path}:{self.number}" if self.number else str(self.path)

    def read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


@dataclass(frozen=True, slots=True)
class Request:
    """What is posted, but for model and priority."""

    endpoint: str
    body: Mapping[str, object]


def find_prompts(path: Path, *, lines: bool = False) -> Iterator[Prompt]:
    """Each prompt of a file: a line of .jsonl; of other files each line with `lines`, else the whole.

    Raises PromptError for a file that cannot be read.
    """
    try:
        if path.suffix.lower() in _JSON_LINES or lines:
            yield from _lines(path)
        elif size := path.stat().st_size:
            yield Prompt(path, 0, size, 0)
    except OSError as error:
        raise PromptError(f"{path} cannot be read: {error.strerror}") from error


def read_request(prompt: Prompt) -> Request:
    """The request for a prompt. Raises PromptError with what is wrong with it, and OSError."""
    raw = prompt.read()
    try:
        text = raw.decode()
        text = text.rstrip("\r\n") if prompt.number else text
        content = json.loads(text) if prompt.path.suffix.lower() in _JSON_LINES else text
    except (ValueError, RecursionError) as error:
        raise PromptError(f"cannot be parsed: {error}") from error
    return _request(content)


def _lines(path: Path) -> Iterator[Prompt]:
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield Prompt(path, offset, len(line), number)
            offset += len(line)


def _request(content: object) -> Request:
    if isinstance(content, str):
        return Request(COMPLETIONS, {"prompt": content})
    if not isinstance(content, dict):
        raise PromptError("is neither an object nor a string")
    if isinstance(content.get("body"), dict):
        return _request(content["body"])
    if "messages" in content:
        return Request(CHAT, _of_the_prompt(content))
    if "prompt" in content:
        return Request(COMPLETIONS, _of_the_prompt(content))
    if isinstance(content.get("text"), str):
        return Request(COMPLETIONS, {"prompt": content["text"]})
    raise PromptError("has none of messages, prompt, text and body")


def _of_the_prompt(content: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in content.items() if key not in _OF_THE_ANSWER}
