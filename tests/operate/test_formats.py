"""Blobs of every format that a release has written are opened by this one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.identity import FORMAT_VERSION

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "format.md").read_text()
RELEASED = re.findall(
    r"^\| [\d.]+ \| (\d*) +\| (\d*) +\| `(\S+)` \|$", PAGE.replace("| |", "|  |"), re.MULTILINE
)


@pytest.mark.parametrize(("blob", "envelope", "example"), RELEASED)
def test_what_a_release_has_written_is_opened(blob: str, envelope: str, example: str) -> None:
    """That pages come out of them as they went in, tests/chunk and tests/codecs show for these files."""
    shown = CliRunner().invoke(app, ["inspect", "blob", str(ROOT / example), "--json"])
    assert shown.exit_code == 0, shown.output
    facts = json.loads(shown.stdout)
    assert facts["kind"] == ("chunk" if blob else "coded")
    assert (facts["pages"], facts["flaw"]) == (2, "")


def test_the_version_that_is_written_has_an_example() -> None:
    assert str(FORMAT_VERSION) in {blob for blob, _, _ in RELEASED}
    assert all(bool(blob) != bool(envelope) for blob, envelope, _ in RELEASED)
    assert len(RELEASED) >= 2


def test_every_kept_example_is_listed() -> None:
    """One that nobody lists is one that nobody opens."""
    kept = [*(ROOT / "tests").rglob("golden_v*.blob"), *(ROOT / "tests").rglob("envelope-*.bin")]
    assert {str(file.relative_to(ROOT)) for file in kept} == {example for _, _, example in RELEASED}
