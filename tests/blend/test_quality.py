"""The tool that measures what reuse does to answers: it trains, and its figures are figures."""

from __future__ import annotations

import random

import pytest
import torch

from scripts.blend_quality import case, qualities, trained, weights
from sgkv.blend.engine import Decoder
from sgkv.testing.small_lm import Shape, SmallLM

pytestmark = pytest.mark.slow


def test_the_model_that_was_trained_is_the_one_that_is_measured() -> None:
    model = SmallLM(Shape(layers=3, hidden=64, head_dim=16))
    tokens = torch.randint(0, 256, (1, 60), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, _ = model(tokens)
        found, _ = Decoder(model.config(), model.checkpoint()).prefill(tokens[0])
    assert torch.allclose(found, expected[0], atol=1e-4)


def test_everything_computed_is_full_prefill_and_less_is_never_closer() -> None:
    found = qualities(trained(3), tests=4)
    assert found[-1].top1_agreement == 1.0
    assert abs(found[-1].kl_nats) < 1e-6
    assert found[0].gap_closed == 0.0
    assert found[-1].gap_closed == pytest.approx(1.0, abs=1e-2)


def test_answers_count_more_than_what_cannot_be_known() -> None:
    made = case(random.Random(1))
    counted = weights(torch.tensor([[*made.tokens, made.answer]]))
    assert counted[0, -1] > 10 * counted[0, 0]
    assert counted[0, :-1].max() == counted[0].min()
