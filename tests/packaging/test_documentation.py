"""The pages a reader starts from name things that exist, and all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sgkv.reasons import MissReason

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Those to other sites are not asked."""
    for target in re.findall(r"\]\((?!https://)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_miss_reason_is_explained() -> None:
    explained = re.findall(r"^\| `([a-z_]+)` \| ", ARCHITECTURE, re.MULTILINE)
    assert sorted(explained) == sorted(reason.value for reason in MissReason)


def test_the_map_shows_places_that_exist_and_leaves_none_out() -> None:
    text = ARCHITECTURE[ARCHITECTURE.index("## Where things are") :]
    shown: set[str] = set()
    for cell in re.findall(r"^\| (`.*?) \| ", text, re.MULTILINE):
        names = re.findall(r"`([^`]+)`", cell)
        folder = names[0].rpartition("/")[0] if not names[0].endswith("/") else ""
        shown |= {name if "/" in name else f"{folder}/{name}" for name in names}
    assert {place for place in shown if not (ROOT / place).exists()} == set()
    folders = {path.parent.name for path in (ROOT / "sgkv").glob("*/__init__.py")} - {
        "backends",
        "triton_kernels",
    }
    assert {name for name in folders if f"sgkv/{name}/" not in shown} == set()
