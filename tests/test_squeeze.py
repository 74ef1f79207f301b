"""The excess loss against more digits, and the squeeze on random problems."""

import mpmath
import numpy as np
import pytest
import torch

from attncore.data import TokenSelection, token_selection
from attncore.squeeze import excess_loss, squeeze_constants
from attncore.svm import attention_svm, smallest_margin


def random_problem(seed):
    rng = np.random.default_rng(seed)
    n, T, d = rng.integers(1, 5), rng.integers(2, 7), rng.integers(1, 6)
    return rng, TokenSelection(rng.normal(size=(n, T, d)), rng.normal(size=(n, d)),
                               rng.choice([-1, 1], n), rng.normal(size=d))


def smallest(prob, W):
    return smallest_margin(W, prob.X, prob.z, prob.optimal)


@pytest.mark.parametrize("seed", range(40))
def test_the_squeeze_on_random_problems(seed):
    rng, prob = random_problem(seed)
    d, slack = prob.X.shape[-1], 1 + 1e-12
    W = torch.tensor(rng.normal(size=(500, d, d)) * 10 ** rng.uniform(-1, 1, (500, 1, 1)))
    low, high = squeeze_constants(prob)
    m, gap = smallest(prob, W), excess_loss(prob, W)
    assert bool((low * torch.exp(-m).clamp(max=1) <= gap * slack).all())
    assert bool((gap <= high * torch.exp(-m) * slack).all())


@pytest.mark.parametrize("radius", [1.0, 30.0, 300.0])
def test_the_excess_in_200_digits(radius):
    prob = token_selection(n=3, T=4, d=5, seed=4)
    svm = attention_svm(prob.X, prob.z, prob.optimal)
    W = radius * svm.W / svm.value
    with mpmath.workdps(200):
        loss = lambda u: mpmath.log(1 + mpmath.exp(-u))  # noqa: E731
        total = mpmath.mpf(0)
        for x, z, score in zip(prob.X, prob.z, prob.scores.tolist(), strict=True):
            query = [mpmath.fdot(row, z.tolist()) for row in W.tolist()]
            e = [mpmath.exp(mpmath.fdot(t, query)) for t in x.tolist()]
            u = mpmath.fdot(e, score) / mpmath.fsum(e)
            total += loss(u) - loss(mpmath.mpf(max(score)))
        true = float(total / 3)
    assert float(excess_loss(prob, W)) == pytest.approx(true, rel=1e-10)


def test_batches_agree_with_single_problems():
    many = token_selection(n=3, T=4, d=5, seed=4, batch=3)
    W = torch.tensor(np.random.default_rng(0).normal(size=(3, 5, 5)))
    excess, constants = excess_loss(many, W), squeeze_constants(many)
    for b in range(3):
        assert torch.allclose(excess[b], excess_loss(many[b], W[b]), rtol=1e-12)
        for batched, single in zip(constants, squeeze_constants(many[b]), strict=True):
            assert torch.allclose(batched[b], single, rtol=1e-12)


def test_ties_and_wrong_types_are_refused():
    tied = TokenSelection([[[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]], [[1.0, 0.0]], [1], [1.0, 0.0])
    with pytest.raises(ValueError, match="unique best score"):
        squeeze_constants(tied)
    assert excess_loss(tied, np.zeros((2, 2))) > 0
    with pytest.raises(TypeError, match="prob must be a TokenSelection"):
        excess_loss("no problem", np.zeros((2, 2)))
