"""attncore.training: trajectories against the reference values, and what a run promises."""

import numpy as np
import pytest
import torch

from attncore.data import TokenSelection, token_selection
from attncore.training import train

PUBLISHED = dict(normalization="each", norm_eps=2.22e-16)


def reference(oracle, k):
    return TokenSelection(*(oracle[f"{k}_{name}"] for name in "Xzyv"))


@pytest.mark.parametrize("k", [0, 1])
def test_published_descent_on_W(oracle_trajectories, k):
    o = oracle_trajectories
    traj = train(reference(o, k), steps=2000, init=o[f"{k}_W0"], record=[100, 300], **PUBLISHED)
    assert traj.steps.tolist() == [0, 100, 300, 2000]
    assert np.abs(traj.W[1].numpy() - o[f"{k}_W100"]).max() < 1e-12
    assert np.abs(traj.W[2].numpy() - o[f"{k}_W300"]).max() < 1e-9
    assert traj.attention.argmax(-1).tolist() == o[f"{k}_Wsel"].tolist()


@pytest.mark.parametrize("k", [0, 1])
def test_published_descent_on_K_and_Q(oracle_trajectories, k):
    o = oracle_trajectories
    start = o[f"{k}_K0"], o[f"{k}_Q0"]
    traj = train(reference(o, k), "KQ", steps=2000, init=start, record=[100], ridge=2.22e-16, **PUBLISHED)
    assert np.abs(traj.W[1].numpy() - o[f"{k}_KQ100"]).max() < 1e-6
    assert traj.attention.argmax(-1).tolist() == o[f"{k}_KQsel"].tolist()


@pytest.mark.parametrize("parametrization", ["W", "KQ"])
def test_batch_equals_its_problems_one_by_one(parametrization):
    prob = token_selection(3, 4, 5, batch=(2, 2), seed=1)
    together = train(prob, parametrization, steps=50, record=25)
    assert together.W.shape == (3, 2, 2, 5, 5)
    start = (None if parametrization == "W" else (together.K[0, 1, 0], together.Q[0, 1, 0]))
    alone = train(prob[1, 0], parametrization, steps=50, record=25, init=start)
    assert torch.allclose(together.W[:, 1, 0], alone.W, rtol=0, atol=1e-12)
    assert torch.allclose(together.loss[:, 1, 0], alone.loss, rtol=1e-13)
