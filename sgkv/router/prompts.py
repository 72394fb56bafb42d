"""The prompt of a request as pages: what stores, engines and the router's own memory know it by."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgkv.keys import hash_pages

GENERATING = ("/v1/completions", "/v1/chat/completions", "/generate")
"""OpenAI's two, and SGLang's own."""
_CHARACTERS = 4
"""A token's, about, where there is no tokenizer."""

Tokenize = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Pages:
    """A prompt."""

    hashes: list[str] = field(default_factory=list)
    """Of its full pages."""
    tokens: int = 0
    exact: bool = False
    """Whether the hashes are those of the engines; else they are good for the router's memory alone."""


class PromptReader:
    """Pages of request bodies. Any thread."""

    def __init__(self, page_tokens: int, tokenizer: Any = None) -> None:
        """`tokenizer` as `transformers` makes them; None knows prompts of text by their characters."""
        self._page_tokens = page_tokens
        self._tokenizer = tokenizer

    @classmethod
    def of_model(cls, page_tokens: int, folder: Path | None) -> PromptReader:
        """Raises OSError or ValueError where `folder` has none, ImportError without `transformers`."""
        if folder is None:
            return cls(page_tokens)
        from transformers import AutoTokenizer

        return cls(page_tokens, AutoTokenizer.from_pretrained(folder, local_files_only=True))

    def read(self, body: bytes) -> Pages:
        """No pages for what is not understood: the engine will say what is wrong with it."""
        try:
            asked = json.loads(body)
        except ValueError:
            return Pages()
        if not isinstance(asked, Mapping):
            return Pages()
        prompt = next((asked[name] for name in ("input_ids", "prompt", "text") if asked.get(name)), None)
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], list):
            prompt = prompt[0]  # a batch goes where its first prompt does
        if isinstance(prompt, list) and all(type(one) is int and one >= 0 for one in prompt):
            return self._exact(prompt)
        messages = asked.get("messages")
        if isinstance(messages, list) and messages:
            return self._chat(messages)
        return self._text(prompt) if isinstance(prompt, str) else Pages()

    def _chat(self, messages: list[Any]) -> Pages:
        if self._tokenizer is None or not getattr(self._tokenizer, "chat_template", None):
            return self._text(json.dumps(messages, sort_keys=True))
        try:
            tokens = self._tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True)
        except (ValueError, TypeError, KeyError):
            return Pages()
        return self._exact(list(tokens["input_ids"] if isinstance(tokens, Mapping) else tokens))

    def _text(self, text: str) -> Pages:
        if self._tokenizer is not None:
            return self._exact(self._tokenizer.encode(text))
        pages = hash_pages(text.encode("utf-8", "surrogatepass"), self._page_tokens * _CHARACTERS)
        return Pages(pages, len(text) // _CHARACTERS)

    def _exact(self, tokens: Sequence[int]) -> Pages:
        return Pages(hash_pages(tokens, self._page_tokens), len(tokens), exact=True)
