"""Real servers on the CPU: they answer what the model says, start and end cleanly, and say why not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from sgkv.testing.models import write_model
from sgkv.testing.server import SglangServer
from tests.testing.test_process import running

pytestmark = pytest.mark.server

KINDS = ["llama", "mla", "swa"]
PROMPT = list(range(2, 200)) * 3
FULL_PAGES = len(PROMPT) // 64 * 64


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {kind: write_model(root / kind, kind) for kind in KINDS}


def greedy(model: Path, prompt: list[int], tokens: int) -> tuple[int, ...]:
    """What transformers' implementation of the model answers."""
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = torch.tensor([prompt])
    answer = reference.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
    return tuple(answer[0, len(prompt) :].tolist())


class TestLlama:
    """With SGLang's own `file` backend: nothing here depends on sgkv's store."""

    @pytest.fixture(scope="class")
    @classmethod
    def server(
        cls, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[SglangServer]:
        folder = tmp_path_factory.mktemp("server")
        env = {"SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(folder / "kv")}
        server = SglangServer(
            models["llama"], storage="file", metrics=True, env=env, log_path=folder / "log", entry="serve"
        )
        with server:
            yield server

    def test_it_answers_what_the_model_says(self, server: SglangServer, models: dict[str, Path]):
        answer = server.generate(PROMPT, 8)
        assert answer.output_ids == greedy(models["llama"], PROMPT, 8)
        assert len(answer.logprobs) == 8
        assert answer.prompt_tokens == len(PROMPT)
        assert 0 < answer.ttft_s <= answer.e2e_s

    def test_a_flush_waits_for_backups_and_leaves_only_storage(self, server: SglangServer):
        prompt = PROMPT[::-1]
        cold = server.generate(prompt)
        server.flush()
        warm = server.generate(prompt)
        assert (cold.cached_tokens, warm.cached_tokens) == (0, FULL_PAGES)
        assert warm.cached_by_tier == {"device": 0, "host": 0, "storage": FULL_PAGES}
        assert warm.same_output(cold)

    def test_text_and_sampling_reach_the_server(self, server: SglangServer):
        answer = server.generate(
            text="to be", sampling={"stop_token_ids": list(range(512)), "ignore_eos": False}
        )
        assert (answer.prompt_tokens, len(answer.output_ids)) == (5, 1)

    def test_refusals_are_errors_with_the_servers_words(self, server: SglangServer):
        with pytest.raises(RuntimeError, match="longer than the model's context length"):
            server.generate([2] * 9000)
        with pytest.raises(RuntimeError, match=r"POST /update_weights_from_disk: 4\d\d"):
            server.update_weights("/nowhere")

    def test_metrics_can_be_asked_by_label(self, server: SglangServer):
        name = "sglang:prompt_tokens_total"
        server.generate([9] * 10, 1)
        assert server.metric(name) >= 10
        assert server.metric(name, model_name="nobody") == 0

    def test_a_crash_leaves_nothing_and_a_new_start_finds_the_storage(self, server: SglangServer):
        server.generate(PROMPT)
        server.flush()
        processes, scratch = server.tree.members(), temporary_folder(server)
        assert len(processes) >= 3
        assert scratch.is_dir()
        server.kill()
        assert not any(map(running, processes))
        assert not server.alive
        assert not server.healthy()
        assert not scratch.exists()
        server.start()
        assert server.generate(PROMPT).cached_by_tier["storage"] == FULL_PAGES

    def test_stop_leaves_nothing(self, server: SglangServer):
        processes = server.tree.members()
        server.stop()
        assert not any(map(running, processes))


def temporary_folder(server: SglangServer) -> Path:
    environment = Path(f"/proc/{server.tree.pid}/environ").read_text().split("\0")
    return next(Path(entry.removeprefix("TMPDIR=")) for entry in environment if entry.startswith("TMPDIR="))


def test_a_server_that_cannot_start_says_why(models: dict[str, Path], tmp_path: Path):
    server = SglangServer(models["llama"], log_path=tmp_path / "log", extra_args=["--no-such-flag"])
    with pytest.raises(RuntimeError, match="unrecognized arguments: --no-such-flag"):
        server.start()
    assert not server.alive


def test_latent_attention_is_that_of_another_implementation(models: dict[str, Path], tmp_path: Path):
    with SglangServer(models["mla"], log_path=tmp_path / "log") as server:
        assert server.generate(PROMPT, 8).output_ids == greedy(models["mla"], PROMPT, 8)
        server.kill()


def test_a_window_pool_answers_like_one_pool_for_all_layers(models: dict[str, Path], tmp_path: Path):
    """Also once the slots of the window pool are not those of the full pool any more."""
    answers = []
    for extra in ([], ["--disable-hybrid-swa-memory"]):
        with SglangServer(models["swa"], log_path=tmp_path / "log", extra_args=extra) as server:
            server.generate(PROMPT[100:], 40)
            answers.append([server.generate(prompt, 8).output_ids for prompt in (PROMPT[::-1], PROMPT)])
            server.kill()
    assert answers[0] == answers[1]
