"""What a training run says of itself when its step is too large: `diverged`, `loss_rises`, `status`."""

import pytest
import torch

from attncore import arrays
from attncore.data import token_selection
from attncore.training import train


@pytest.fixture(params=["numpy", "torch"])
def either_array(request, monkeypatch):
    """Run the test on both kinds of array."""
    if request.param == "torch":
        monkeypatch.setattr(arrays, "SMALL_PROBLEM", 0)


def test_a_diverging_problem_is_reported_and_its_neighbours_are_not_affected(either_array):
    prob = token_selection(3, 4, 5, batch=3, seed=2)
    start = torch.zeros(3, 5, 5).double()
    start[1] = 1e300
    traj = train(prob, steps=60, lr=30.0, ridge=0.05, normalized=False, init=start, record=[20, 40])
    assert traj.diverged.tolist() == [-1, 40, -1] and "overflowed in 1 of 3 runs, first at state 40" in traj.status
    assert not traj.W[2, 1].isfinite().all() and traj.W[:, [0, 2]].isfinite().all()
    alone = train(prob[2], steps=60, lr=30.0, ridge=0.05, normalized=False, record=[20, 40])
    assert torch.allclose(traj.W[:, 2], alone.W, rtol=1e-9) and int(alone.diverged) == -1
    lost = train(prob[0], steps=2, lr=1e308, record=1)
    assert int(lost.diverged) == 1 and int(lost.saturated) == -1 and "use a smaller lr" in lost.status


@pytest.mark.parametrize("parametrization", ["W", "KQ"])
def test_a_step_that_makes_the_objective_rise_is_reported(parametrization, either_array):
    prob = token_selection(3, 4, 5, batch=2, seed=2)
    small = train(prob, parametrization, steps=40, lr=0.01, normalized=False, ridge=0.1, record=1)
    assert small.loss_rises.tolist() == small.diverged.tolist() == [-1, -1] and small.status.startswith("ok")
    large = train(prob, parametrization, steps=40, lr=11.0, normalized=False, ridge=0.1, record=1)
    weights = [large.W] if parametrization == "W" else [large.K, large.Q]
    objective = large.loss + 0.1 * sum(M.square().sum((-1, -2)) for M in weights)
    rose = (objective[1:] > objective[:-1]).int().argmax(0) + 1
    assert large.loss_rises.tolist() == rose.tolist() and f"first at state {int(rose.min())}" in large.status
    assert train(prob, parametrization, steps=0).loss_rises.tolist() == [-1, -1]
