"""A prompt's KV pushed from a real prefill server's store into another's, which answers from it.

Both stores are disk tiers: an engine's own process takes nothing from the channel yet, so what arrives is put
into the second server's folder by a process beside it.
"""

from pathlib import Path

import pytest

from scripts.pd_push import play
from tests.e2e.rig import assert_same, prompt

pytestmark = [pytest.mark.server, pytest.mark.slow]


def test_the_second_server_answers_with_the_prompt_cached(tmp_path: Path):
    story = play(tmp_path, prompt(1))
    assert story.refused == 0
    assert story.taken >= story.full_page_tokens // 256
    assert story.prefilled.cached_tokens == 0
    assert (
        story.decoded.cached_tokens
        == story.decoded.cached_by_tier.get("storage", 0)
        == story.full_page_tokens
    )
    assert_same(story.decoded, story.prefilled)
