"""Prompts through a server that refuses in every way a server can."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.prewarm.computing import Asking, compute_prompts, wait_stored
from sgkv.prewarm.engine import AddressError, Engine, EngineError
from sgkv.prewarm.journal import Journal
from sgkv.prewarm.outcomes import Ended, Report
from sgkv.prewarm.pace import Control
from sgkv.prewarm.prompts import find_prompts
from sgkv.prewarm.running import Run
from tests.prewarm.openai_server import Server, answered, refused, serving
from tests.prewarm.test_copy import counts


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [{"prompt": f"number {number}"} for number in range(6)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def computed(server: Server, folder: Path, run: Run | None = None, **options: object) -> Report:
    run = run or Run(workers=2)
    with Journal(folder / "state", "compute") as journal, Engine(server.url) as engine:
        prompts = find_prompts(folder / "prompts.jsonl")
        compute_prompts(prompts, engine, engine.facts(), journal, run, **options)
    return run.report("compute")


def quick(attempts: int = 6) -> Run:
    """Does not wait between tries, but remembers how long it would have."""
    control = Control(attempts=attempts)
    control.waits = []
    control.wait = lambda seconds: control.waits.append(seconds) or not control.stopped
    return Run(control, workers=1)


class TestWhatIsSent:
    def test_every_prompt_once_for_one_token(self, server, folder):
        report = computed(server, folder)
        assert counts(report) == {"computed": 6}
        assert sorted(body["prompt"] for body in server.bodies()) == [f"number {at}" for at in range(6)]
        assert server.bodies()[0] | {"prompt": ""} == {
            "prompt": "",
            "model": "tiny",
            "max_tokens": 1,
            "temperature": 0,
            "stream": False,
        }
        assert report.facts["tokens"] == {"prompt": 600, "cached": 384, "cached_unreported": 0}

    def test_cached_tokens_may_not_be_reported(self, server, folder):
        server.otherwise = answered(cached=None)
        assert computed(server, folder).facts["tokens"]["cached_unreported"] == 6

    @pytest.mark.parametrize(
        ("flags", "priority"),
        [
            ({"enable_priority_scheduling": True}, -(2**31) + 1),
            (
                {"enable_priority_scheduling": True, "schedule_low_priority_values_first": True},
                2**31 - 1,
            ),
            ({"enable_priority_scheduling": False}, None),
            (None, None),
        ],
        ids=["large first", "small first", "none", "unknown"],
    )
    def test_the_lowest_priority_where_the_server_has_priorities(self, server, folder, flags, priority):
        server.server_info = flags
        computed(server, folder)
        assert {body.get("priority") for body in server.bodies()} == {priority}

    def test_the_model_of_the_line_that_of_the_server_or_the_one_that_is_asked_for(self, server, folder):
        (folder / "prompts.jsonl").write_text('{"prompt": "a", "model": "tiny:adapter"}\n{"prompt": "b"}\n')
        computed(server, folder)
        assert {body["model"] for body in server.bodies()} == {"tiny:adapter", "tiny"}
        server.posts.clear()
        computed(server, folder, asking=Asking(model="other"))
        assert [body["model"] for body in server.bodies()] == ["other", "other"]

    def test_no_more_at_once_than_there_are_workers(self, server, folder):
        both, gate = threading.Semaphore(0), threading.Event()

        def hold(number: int) -> None:
            both.release()
            gate.wait(20)

        server.before_reply = hold
        runner = threading.Thread(target=computed, args=(server, folder))
        runner.start()
        assert both.acquire(timeout=20)
        assert both.acquire(timeout=20)
        assert len(server.posts) == 2
        gate.set()
        runner.join(20)
        assert len(server.posts) == 6

    def test_a_key_is_sent_and_an_address_may_end_in_v1(self, server):
        with Engine(f"{server.url}/v1/", api_key="secret") as engine:
            engine.post("/v1/completions", {})
        assert server.posts[0][2]["Authorization"] == "Bearer secret"

    def test_a_limit_in_bytes(self, server, folder):
        size = len('{"prompt": "number 0"}\n')
        assert counts(computed(server, folder, max_bytes=2 * size)) == {"computed": 2, "left": 4}
        assert counts(computed(server, folder)) == {"computed": 4, "done_before": 2}

    def test_a_dry_run_sends_nothing(self, server, folder):
        assert counts(computed(server, folder, Run(dry_run=True))) == {"planned": 6}
        assert server.posts == []


class TestResuming:
    def test_what_was_answered_is_not_sent_again(self, server, folder):
        computed(server, folder)
        with (folder / "prompts.jsonl").open("a") as file:
            file.write('{"prompt": "new"}\n')
        assert counts(computed(server, folder)) == {"computed": 1, "done_before": 6}
        assert len(server.posts) == 7

    def test_other_weights_are_other_work(self, server, folder):
        computed(server, folder)
        server.weight_version = "2"
        assert counts(computed(server, folder)) == {"computed": 6}

    def test_a_stop_leaves_the_rest(self, server, folder):
        run = Run(workers=1)
        server.before_reply = lambda number: number == 3 and run.control.stop(Ended.INTERRUPTED)
        report = computed(server, folder, run)
        assert counts(report) == {"computed": 3, "left": 3}
        assert report.exit_code == 130
        assert counts(computed(server, folder)) == {"computed": 3, "done_before": 3}

    def test_what_stands_in_the_file_twice_is_sent_once(self, server, folder):
        (folder / "prompts.jsonl").write_text('{"prompt": "a"}\n' * 3)
        assert counts(computed(server, folder, Run(workers=1))) == {"computed": 1, "done_before": 2}
        assert len(server.posts) == 1


class TestRefusals:
    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    def test_later_means_again(self, server, folder, status):
        server.replies = [refused(status), refused(status)]
        run = quick()
        assert counts(computed(server, folder, run)) == {"computed": 6}
        assert len(server.posts) == 8
        assert run.control.retries == 2

    def test_as_late_as_the_server_says_within_reason(self, server, folder):
        server.replies = [refused(429, retry_after="7"), refused(503, retry_after="99999")]
        run = quick()
        computed(server, folder, run)
        waits = [seconds for seconds in run.control.waits if seconds]
        assert waits == [7.0, 120.0]

    def test_an_abort_is_no_answer(self, server, folder):
        server.replies = [answered(finish="abort")]
        assert counts(computed(server, folder, quick())) == {"computed": 6}
        assert len(server.posts) == 7

    def test_what_it_will_never_take_is_not_tried_again(self, server, folder):
        server.replies = [refused(400)]
        report = computed(server, folder, quick())
        assert counts(report) == {"computed": 5, "refused": 1}
        assert report.exit_code == 1
        assert "no, 400" in report.problems[0].why
        assert report.problems[0].item.endswith("prompts.jsonl:1")

    def test_lines_that_hold_no_prompt_are_named(self, server, folder):
        (folder / "prompts.jsonl").write_text('{"prompt": "a"}\n{"nothing": 1}\nnonsense\n')
        report = computed(server, folder)
        assert counts(report) == {"computed": 1, "refused": 2}
        assert [problem.item.rpartition(":")[2] for problem in report.problems] == ["2", "3"]

    @pytest.mark.parametrize(
        "text", ['"\\ud800"', '"a", "logit_bias": NaN', '"a", "x": 1e999', "[" * 900 + "]" * 900]
    )
    def test_what_json_can_say_and_text_cannot_is_for_the_server_to_refuse(self, server, folder, text):
        (folder / "prompts.jsonl").write_text(f'{{"prompt": {text}}}\n{{"prompt": "b"}}\n')
        server.replies = [refused(400)]
        assert counts(computed(server, folder, quick())) == {"computed": 1, "refused": 1}

    def test_an_answer_that_is_none(self, server, folder):
        server.replies = [(200, {}, {"hello": "world"})]
        assert counts(computed(server, folder, quick())) == {"computed": 5, "refused": 1}

    def test_a_server_that_is_gone_ends_the_run(self, server, folder):
        lines = [json.dumps({"prompt": f"{number}"}) for number in range(50)]
        (folder / "prompts.jsonl").write_text("\n".join(lines))
        with Engine(server.url) as engine:
            facts = engine.facts()
        run = quick(attempts=2)
        with Journal(folder / "state", "compute") as journal, Engine("http://127.0.0.1:9") as engine:
            compute_prompts(find_prompts(folder / "prompts.jsonl"), engine, facts, journal, run)
        report = run.report("compute")
        assert counts(report) == {"failed": 20, "left": 30}
        assert report.exit_code == 3

    def test_a_server_that_lists_no_model(self):
        with Engine("http://127.0.0.1:9") as engine, pytest.raises(EngineError, match="no model"):
            engine.facts()

    def test_what_is_no_address(self):
        with pytest.raises(AddressError, match="http://HOST:PORT"):
            Engine("localhost:30000")


class TestStored:
    def test_waits_until_the_server_writes_no_more(self, server):
        server.written = [100, 300, 300, 500, 500]
        run = quick()
        with Engine(server.url) as engine:
            wait_stored(engine, engine.written_bytes(), run, 60)
        assert run.facts["stored_bytes"] == {"disk": 400}
        assert run.facts["stored_settled"] is True

    def test_no_longer_than_the_limit(self, server):
        server.written = list(range(1000))
        run = quick()
        with Engine(server.url) as engine:
            wait_stored(engine, engine.written_bytes(), run, 10)
        assert run.facts["stored_settled"] is False
        assert len(run.control.waits) == 5

    def test_a_server_without_metrics_is_not_waited_for(self, server):
        run = quick()
        with Engine(server.url) as engine:
            wait_stored(engine, engine.written_bytes(), run, 60)
        assert run.facts["stored_bytes"] is None
        assert run.control.waits == []
