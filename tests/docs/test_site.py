"""The documentation site is built without a warning: links, anchors, pages left out, names of the API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert pages <= {page.stem for page in tmp_path.glob("*.html")}
    api = (tmp_path / "api.html").read_text()
    assert 'id="sgkv.backends.base.Backend.delete_prefix"' in api
    for page in tmp_path.glob("*.html"):
        assert "fonts.googleapis" not in page.read_text(), page.name
