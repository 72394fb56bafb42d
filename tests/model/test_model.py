"""More than twenty thousand steps of the game; `make soak` plays longer."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import StoreMachine

pytestmark = pytest.mark.slow

STEPS = 20_000
_EXAMPLES, _LENGTH = 125, 100
GAME = settings(
    max_examples=_EXAMPLES,
    stateful_step_count=_LENGTH,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("arena", [False, True], ids=["disk", "cpu+disk"])
def test_the_store_answers_as_its_model(arena):
    machine = type("Machine", (StoreMachine,), {"arena": arena})
    run_state_machine_as_test(machine, settings=GAME)
    assert machine.steps >= STEPS // 2, "steps played"
