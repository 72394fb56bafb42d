"""How fast a server computes; a real one is measured in tests/e2e/test_events.py, where one is running."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
import uvicorn
import yaml
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.config import load
from sgkv.control.serving import in_background
from sgkv.decide.calibrating import LENGTHS, CalibrationError, fit
from sgkv.decide.prefill import Prefill


@given(st.floats(500, 200_000), st.floats(5_000, 500_000), st.floats(0, 0.5))
def test_what_follows_the_rule_is_found_again(tokens_s: float, half: float, overhead: float) -> None:
    rule = Prefill(tokens_s, half)
    found = fit({length: overhead + rule.seconds(length) for length in LENGTHS})
    assert found.worst < 1e-3
    for length in (1000, 20_000):
        assert found.prefill.seconds(length) == pytest.approx(rule.seconds(length), rel=0.02, abs=1e-4)


@pytest.mark.parametrize("times", [{512: 1.0, 1024: 2.0}, dict.fromkeys(LENGTHS, 0.5)], ids=["few", "cached"])
def test_what_says_nothing_is_refused(times: dict[int, float]) -> None:
    with pytest.raises(CalibrationError):
        fit(times)


def test_noise_never_makes_a_rate_negative() -> None:
    found = fit({512: 0.2, 1024: 0.15, 2048: 0.4, 4096: 0.6, 8192: 1.0})
    assert found.prefill.tokens_s > 0
    assert found.overhead >= 0


@pytest.fixture
def server() -> Iterator[str]:
    """Stands in for an engine whose speed is known: 20,000 tokens a second, at most 5,000 tokens."""

    async def completions(request: Request) -> StreamingResponse | JSONResponse:
        tokens = len(json.loads(await request.body())["prompt"])
        if tokens > 5000:
            return JSONResponse({"error": "too long"}, 400)

        async def pieces():
            await asyncio.sleep(tokens / 20_000)
            yield b'data: {"choices": []}\n\ndata: [DONE]\n\n'

        return StreamingResponse(pieces())

    async def models(_request: Request) -> JSONResponse:
        return JSONResponse({"data": [{"id": "m"}]})

    routes = [Route("/v1/completions", completions, methods=["POST"]), Route("/v1/models", models)]
    config = uvicorn.Config(Starlette(routes=routes), port=0, log_config=None, access_log=False)
    with in_background(uvicorn.Server(config)) as url:
        yield url


def test_the_command_prints_settings_that_are_settings(server: str) -> None:
    done = CliRunner().invoke(app, ["calibrate", server, "--repeats", "1"])
    assert done.exit_code == 0, done.output
    text = done.output[done.output.index("# time") :]
    gate = load(yaml.safe_load(text), environ={}).config.gate
    assert gate.mode == "shadow"
    assert gate.prefill_tokens_s == pytest.approx(20_000, rel=0.3)
    assert "4096 tokens" in text
    assert "8192 tokens" not in text, "longer than what the server takes"


def test_nobody_there_is_said(server: str) -> None:
    done = CliRunner().invoke(app, ["calibrate", "http://127.0.0.1:9"])
    assert done.exit_code == 2
    assert "127.0.0.1:9" in done.output
