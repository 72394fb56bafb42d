"""What a terminal is shown."""

from __future__ import annotations

import io

from rich.console import Console

from sgkv.prewarm.progress import Bars


def test_a_bar_has_bytes_rate_and_time_left_and_follows_the_run():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120, color_system=None)
    with Bars(console) as bars:
        bars.prepare("listing")
        bars._progress.refresh()
        bars.begin("copying", 4, 8 << 20)
        for _ in range(3):
            bars.advance(2 << 20)
        bars._progress.refresh()
    text = shown.getvalue()
    assert "listing" in text
    assert "copying (4)" in text
    assert "6.0/8.0 MiB" in text
    assert "B/s" in text
    assert "0:00:0" in text


def test_what_is_not_begun_does_not_advance():
    with Bars(Console(file=io.StringIO())) as bars:
        bars.advance(1)
