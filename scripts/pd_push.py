"""Push a prompt's KV from one server's store into another's, and let that one answer.

    python -m scripts.pd_push

A real SGLang server prefills a prompt. Its chunks go from its store through the channel of `sgkv.pd` into a
process beside a second server, which puts them into that one's disk tier, empty until then. The second server
then answers with the prompt cached. Everything runs in a network of its own with nothing but loopback, since
Mooncake's Transfer Engine listens on all interfaces.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sgkv.backends.base import BlobInfo
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from sgkv.keys import hash_pages
from sgkv.pd import Engine, Receiver, Sender, push, taking_into
from sgkv.testing.client import Generation
from sgkv.testing.loopback import alone, in_loopback
from sgkv.testing.models import write_model
from sgkv.testing.server import SglangServer
from sgkv.testing.waiting import wait_until

PAGE_TOKENS, OUTPUT_TOKENS = 64, 12
_CAPACITY = 1 << 30
_SLOT_BYTES = 4 << 20
_SECONDS = 30.0
_TOKEN = "SGKV_PD_TOKEN"  # the environment variable from which the receiver takes it


@dataclass(frozen=True, slots=True)
class Story:
    """What happened."""

    prefilled: Generation
    decoded: Generation
    taken: int
    """Blobs that the second server's store took."""
    refused: int
    full_page_tokens: int
    """Of the prompt: what can be restored."""


def play(folder: Path, ids: Sequence[int]) -> Story:
    """Prefill `ids` on one server, push, and answer on another. Raises RuntimeError, or OSError."""
    model = write_model(folder / "model", "llama")
    stores = {name: folder / name for name in ("prefill", "decode")}
    with ExitStack() as stack:
        servers = {name: _server(model, folder / f"{name}.log", path) for name, path in stores.items()}
        for server in servers.values():
            stack.enter_context(closing(server))
        with ThreadPoolExecutor(len(servers)) as starting:
            list(starting.map(SglangServer.start, servers.values()))
        prefilled = servers["prefill"].generate(ids, OUTPUT_TOKENS)
        outcomes = _push_prompt(stores["prefill"], stores["decode"], ids)
        decoded = servers["decode"].generate(ids, OUTPUT_TOKENS)
    full = len(ids) // PAGE_TOKENS * PAGE_TOKENS
    return Story(prefilled, decoded, sum(outcomes), len(outcomes) - sum(outcomes), full)


def _server(model: Path, log: Path, store: Path) -> SglangServer:
    config = {
        "tiers": [{"type": "disk", "path": str(store), "capacity": "1GiB"}],
        "write_behind": {"tail_delay": 0.05},
        "engine": {"exists_deadline": 20, "get_deadline": 30, "set_deadline": 30},
    }
    return SglangServer(model, log_path=log, page_size=PAGE_TOKENS, storage="sgkv", storage_config=config)


def _push_prompt(source: Path, target: Path, ids: Sequence[int]) -> list[bool]:
    """Whether each of the prompt's blobs was taken."""
    token = secrets.token_hex(16)
    with closing(DiskBackend(source, _CAPACITY)) as store, _receiver(target, token) as port:
        blobs = _stored(store, ids)
        with closing(Sender(Engine(), ("127.0.0.1", port), token=token)) as sender:
            return [outcome.taken for outcome in push(store, blobs, sender, Deadline(_SECONDS))]


def _stored(store: DiskBackend, ids: Sequence[int]) -> list[BlobInfo]:
    """The prompt's blobs from its first chunk on, once its last page is there."""
    place = {page: at for at, page in enumerate(hash_pages(ids, PAGE_TOKENS))}

    def blobs() -> dict[int, BlobInfo]:
        named = ((place.get(blob.key.rpartition("/")[2]), blob) for blob in store.scan())
        return {at: blob for at, blob in named if at is not None}

    wait_until(lambda: len(place) - 1 in blobs(), "the prompt's last page in the store", _SECONDS)
    return [blob for _, blob in sorted(blobs().items())]


@contextmanager
def _receiver(folder: Path, token: str) -> Iterator[int]:
    """A process that takes chunks into the disk tier at `folder`; the port it listens on."""
    command = [sys.executable, "-m", "scripts.pd_push", str(folder)]
    env, pipe = {**os.environ, _TOKEN: token}, subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            answer = process.stdout.readline() if process.stdout else ""
            if not answer:
                raise RuntimeError("the receiver did not start")
            yield int(answer)
        finally:
            process.communicate()


def receive(folder: Path) -> None:
    """Take chunks until stdin is closed."""
    with closing(DiskBackend(folder, _CAPACITY)) as store:
        receiver = Receiver(Engine(), taking_into(store), slot_bytes=_SLOT_BYTES, token=os.environ[_TOKEN])
        with closing(receiver):
            print(receiver.address[1], flush=True)
            sys.stdin.read()


def main() -> None:
    """Play it with 2000 tokens, and say what happened."""
    if not alone():
        command = in_loopback([sys.executable, "-m", "scripts.pd_push"])
        os.execvp(command[0], command)  # noqa: S606 - ourselves
    with tempfile.TemporaryDirectory(prefix="sgkv-pd-") as folder:
        story = play(Path(folder), [2 + at * at % 251 for at in range(2000)])
    print(f"blobs taken {story.taken}, refused {story.refused}")
    for name, answer in (("prefilled", story.prefilled), ("decoded", story.decoded)):
        cached = f"{answer.cached_tokens} of {answer.prompt_tokens} tokens cached"
        print(f"{name}: {cached}, {answer.ttft_s:.2f} s to the first token, {list(answer.output_ids)}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        receive(Path(sys.argv[1]))
    else:
        main()
