"""What the tests on real servers share: prompts, stores, and how to see that something was stored."""

import os
import random
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sgkv.testing.client import Generation
from sgkv.testing.waiting import wait_until

PROMPT_TOKENS, OUTPUT_TOKENS = 2002, 12
"""At 16, 64 and 256 tokens a page the prompt ends inside a page and the answer completes none."""

BLOCK = 4096
"""Unit of a disk tier's quota, and size of a blob's header."""

LOGPROB_TOLERANCE = 1e-5
"""In fp32; KV of another prompt moves them by more than 1e-2 (a test sees to that)."""

PATIENT = {"contains": 20, "get": 30, "put": 30}
"""Deadlines that a busy machine does not miss."""

Settings = dict[str, object]


def prompt(seed: int, tokens: int = PROMPT_TOKENS) -> list[int]:
    """Token ids that no other seed shares a page with."""
    source = random.Random(seed)
    return [source.randrange(2, 258) for _ in range(tokens)]


def settings(folder: "Folder | Path", *, cpu: bool = True, **disk: object) -> Settings:
    """A patient store over a small cpu tier and a disk tier; `disk` adds to the latter."""
    path = folder.path if isinstance(folder, Folder) else folder
    tiers: list[Settings] = [{"type": "cpu", "capacity": "64MiB"}] if cpu else []
    tiers.append({"type": "disk", "path": str(path), "capacity": "1GiB", "deadlines": PATIENT, **disk})
    return over(*tiers)


def over(*tiers: Settings) -> Settings:
    """A patient store over these tiers."""
    engine = {"exists_deadline": 20, "get_deadline": 30, "set_deadline": 30}
    return {"tiers": [*tiers], "write_behind": {"tail_delay": 0.05}, "engine": engine}


def assert_same(answer: Generation, reference: Generation) -> None:
    """Equal tokens, and log-probabilities equal within what fp32 leaves open."""
    assert answer.output_ids == reference.output_ids
    assert answer.logprobs == pytest.approx(reference.logprobs, abs=LOGPROB_TOLERANCE, rel=0)


@dataclass(frozen=True, slots=True)
class Folder:
    """A disk tier's folder as anybody may look at it."""

    path: Path

    def blobs(self) -> list[Path]:
        """Published blobs, in the order of their names."""
        return sorted(path for path, _ in self._files())

    def size(self) -> int:
        """Bytes of all blobs."""
        return sum(size for _, size in self._files())

    def quota(self) -> int:
        """What these blobs take of a disk tier's capacity."""
        return sum(-(-size // BLOCK) * BLOCK for _, size in self._files())

    def temps(self) -> list[str]:
        """Files that some writer has begun and not published."""
        return [path.name for path in (self.path / "tmp").iterdir()]

    def quarantined(self) -> list[str]:
        """Files that a reader has taken out of use."""
        return [path.name for path in (self.path / "quarantine").iterdir()]

    def wait_for_size(self, size: int) -> None:
        """Wait until blobs of at least `size` bytes are there."""
        wait_until(lambda: self.size() >= size, f"{size} bytes in {self.path}")

    def _files(self) -> Iterator[tuple[Path, int]]:
        for path in (self.path / "blobs").rglob("*"):
            with suppress(FileNotFoundError):  # evicted or cleared while we look
                info = path.stat()
                if stat.S_ISREG(info.st_mode):
                    yield path, info.st_size


@dataclass(frozen=True, slots=True)
class Usage:
    """What the processes of a server hold."""

    files: int
    threads: int


def processes_of(group: int) -> list[int]:
    """Ids of the processes of a process group."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):  # it may end while we look
            if os.getpgid(int(process.name)) == group:
                found.append(int(process.name))
    return found


def usage(group: int) -> Usage:
    """Open files and threads of all processes of a process group."""
    homes = [Path("/proc", str(process)) for process in processes_of(group)]
    files = sum(len(list((home / "fd").iterdir())) for home in homes)
    return Usage(files, sum(len(list((home / "task").iterdir())) for home in homes))


def full_tokens(ids: Sequence[int], page_size: int) -> int:
    """Tokens of a prompt that lie in whole pages."""
    return len(ids) // page_size * page_size
