"""Files of prompts, and what is made of their lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgkv.prewarm.prompts import CHAT, COMPLETIONS, PromptError, find_prompts, read_request

MESSAGES = [{"role": "user", "content": "hi"}]


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def request_of(folder: Path, line: object):
    (prompt,) = find_prompts(written(folder, "one.jsonl", json.dumps(line)))
    return read_request(prompt)


@pytest.mark.parametrize(
    ("line", "endpoint", "body"),
    [
        ({"messages": MESSAGES, "tools": []}, CHAT, {"messages": MESSAGES, "tools": []}),
        ({"prompt": "p", "cache_salt": "s"}, COMPLETIONS, {"prompt": "p", "cache_salt": "s"}),
        ({"prompt": [1, 2, 3]}, COMPLETIONS, {"prompt": [1, 2, 3]}),
        ({"text": "d", "id": 7, "url": "http://..."}, COMPLETIONS, {"prompt": "d"}),
        ("plain", COMPLETIONS, {"prompt": "plain"}),
        (
            {"custom_id": "1", "method": "POST", "url": CHAT, "body": {"messages": MESSAGES, "n": 4}},
            CHAT,
            {"messages": MESSAGES},
        ),
    ],
)
def test_forms_of_a_line(tmp_path, line, endpoint, body):
    request = request_of(tmp_path, line)
    assert (request.endpoint, request.body) == (endpoint, body)


def test_what_only_shapes_the_answer_is_left_out(tmp_path):
    line = {
        "prompt": "p",
        "max_tokens": 99,
        "stream": True,
        "n": 3,
        "temperature": 1,
        "priority": 5,
        "top_p": 1,
    }
    assert request_of(tmp_path, line).body == {"prompt": "p"}


@pytest.mark.parametrize("line", [7, None, [], {}, {"text": 3}, {"body": {"input": "x"}}])
def test_a_line_that_holds_no_prompt(tmp_path, line):
    with pytest.raises(PromptError):
        request_of(tmp_path, line)


@pytest.mark.parametrize("raw", [b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_line_that_is_no_json(tmp_path, raw):
    (prompt,) = find_prompts(written(tmp_path, "bad.jsonl", raw))
    with pytest.raises(PromptError, match="cannot be parsed"):
        read_request(prompt)


def test_lines_are_found_where_they_stand(tmp_path):
    path = written(tmp_path, "some.jsonl", '"one"\n\n  \n"zwei äöü"\r\n"three"')
    prompts = list(find_prompts(path))
    assert [prompt.name for prompt in prompts] == [f"{path}:1", f"{path}:4", f"{path}:5"]
    assert [read_request(prompt).body["prompt"] for prompt in prompts] == ["one", "zwei äöü", "three"]


def test_a_text_file_is_one_document_as_it_is(tmp_path):
    (prompt,) = find_prompts(written(tmp_path, "doc.txt", "first\nsecond\n"))
    assert read_request(prompt).body == {"prompt": "first\nsecond\n"}
    assert prompt.name == str(tmp_path / "doc.txt")


def test_or_a_prompt_a_line(tmp_path):
    prompts = find_prompts(written(tmp_path, "doc.txt", "first\n\nsecond\n"), lines=True)
    assert [read_request(prompt).body["prompt"] for prompt in prompts] == ["first", "second"]


def test_an_empty_file_holds_none(tmp_path):
    assert list(find_prompts(written(tmp_path, "doc.txt", ""))) == []
    assert list(find_prompts(written(tmp_path, "doc.jsonl", ""))) == []


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(PromptError, match="cannot be read"):
        list(find_prompts(tmp_path / "missing.jsonl"))
