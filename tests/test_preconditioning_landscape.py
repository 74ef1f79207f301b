"""Hessian, spectrum on the minimisers, local rates, one-point constants, saddles: each against an independent route."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attncore import preconditioning as pc

seeds = st.integers(0, 10**6)
SHAPES = [(3, 3, 3), (4, 2, 2), (2, 4, 2), (3, 3, 2), (2, 3, 1), (1, 1, 1)]


def problem(seed, p, d, s, kappa=10.0):
    task = pc.gaussian_task(1, s, d=d, p=p, kappa=kappa, seed=seed)
    return task.Sigma, task.M


def random_point(seed, p, d, Sigma):
    rng = np.random.default_rng(seed)
    return pc.unwhiten(rng.standard_normal((p, d)), rng.standard_normal((d, d)), Sigma)


def objective(flat, G, lam):
    """The loss plus regulariser as a function of one vector holding (U, Z)."""
    p, d = G.shape
    U, Z = flat[: p * d].reshape(p, d), flat[p * d :].reshape(d, d)
    return (U @ Z.T - G).square().sum() / 2 + lam / 4 * (U.T @ U - Z.T @ Z).square().sum()


def flat(A, B, Sigma):
    return torch.cat([part.reshape(-1) for part in pc.whiten(A, B, Sigma)])


@pytest.mark.parametrize("p, d, rank", SHAPES)
@pytest.mark.parametrize("lam", [0.0, 0.5, 0.8])
def test_hessian_is_that_of_autograd(p, d, rank, lam):
    Sigma, M = problem(0, p, d, np.linspace(1.2, 0.4, rank))
    A, B = random_point(1, p, d, Sigma)
    G = pc.whiten(M, B, Sigma)[0]
    expected = torch.autograd.functional.hessian(lambda w: objective(w, G, lam), flat(A, B, Sigma))
    found = pc.hessian(A, B, Sigma, M, lam)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11 * float(expected.abs().max()))


@pytest.mark.parametrize("p, d, rank", SHAPES)
@pytest.mark.parametrize("lam", [0.0, 0.25, 0.5, 0.8])
def test_spectrum_on_the_minimisers(p, d, rank, lam):
    s = np.linspace(1.2, 0.4, rank)
    Sigma, M = problem(2, p, d, s)
    found = torch.linalg.eigvalsh(pc.hessian(*pc.spectral_init(Sigma, M), Sigma, M, lam))
    torch.testing.assert_close(found, pc.hessian_spectrum(s, p, d, lam), rtol=0, atol=1e-10)
    if lam:
        zeros = int((pc.hessian_spectrum(s, p, d, lam) == 0).sum())
        assert zeros == rank * d - rank * (rank + 1) // 2 + (d - rank) * (p + d - 2 * rank)


def test_spectrum_by_hand():
    found = pc.hessian_spectrum([3.0, 1.0], 2, 2, 0.5)
    assert found.tolist() == [0.0, 2.0, 2.0, 4.0, 4.0, 4.0, 6.0, 6.0]
    tall = pc.hessian_spectrum([3.0, 1.0], 3, 2, 0.5)
    assert tall.tolist() == [0.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 4.0, 6.0, 6.0]


def test_best_step_and_rate():
    rate = pc.local_rate([2.0, 1.0], 2, 2)
    assert (rate.mu, rate.step, rate.linear) == (pytest.approx(1 / 3), pytest.approx(1 / 3), True)
    tall = pc.local_rate([2.0, 1.0], 4, 2)
    assert (tall.mu, tall.step) == (pytest.approx(3 / 5), pytest.approx(2 / 5))
    assert not pc.local_rate([2.0, 1.0], 2, 3).linear and not pc.local_rate([2.0, 1.0], 2, 2, lam=0).linear


@pytest.mark.parametrize("shape, kappa", [((3, 3), 1.0), ((3, 3), 1000.0), ((5, 3), 1000.0)])
def test_the_rate_is_observed_and_the_condition_number_is_not(shape, kappa):
    p, d = shape
    s = [1.0, 0.7, 0.4]
    Sigma, M = problem(3, p, d, s, kappa)
    rate = pc.local_rate(s, p, d)
    rng = np.random.default_rng(0)
    root = pc.unwhiten(rng.standard_normal((p, d)), rng.standard_normal((d, d)), Sigma)
    A, B = (a + 1e-4 * e for a, e in zip(pc.spectral_init(Sigma, M), root, strict=True))
    run = pc.descend(A, B, Sigma, M, lr=rate.step, steps=18, record=[8])
    distance = pc.manifold_distance(run.history.A, run.history.B, Sigma, M)
    loss = run.history.loss
    assert float((distance[2] / distance[1]) ** 0.1) == pytest.approx(rate.mu, abs=2e-3)
    assert float((loss[2] / loss[1]) ** 0.1) == pytest.approx(rate.mu**2, abs=4e-3)


def test_below_full_rank_convergence_is_not_geometric():
    # p < d: the loss falls geometrically, the regulariser like t^-2; r < min(p, d): the loss too.
    wide = problem(4, 1, 2, [1.0], 1.0)
    run = pc.descend(*random_point(5, 1, 2, wide[0]), *wide, lr=0.3, steps=2000, record=[1000])
    assert float(run.history.loss[2]) < 1e-20
    slope = math.log2(float(run.history.balance[1] / run.history.balance[2]))
    assert slope == pytest.approx(2, abs=0.1)
    low = torch.ones(1, 1, dtype=torch.float64)
    run = pc.descend(0.5 * low, 0.5 * low, low, 0 * low + 1e-300, lr=0.5, steps=3000, record=[3000])
    t = 0.5 * 3000
    assert float(run.history.loss[-1]) == pytest.approx(1 / (8 * t * t), rel=0.01)


@given(seeds, st.floats(0.02, 1.3), st.sampled_from([(2, 2, 0.5), (3, 3, 0.5), (2, 2, 0.2), (3, 2, 0.5), (2, 2, 1.0)]))
def test_one_point_constants_hold(seed, share, shape):
    p, d, lam = shape
    s = np.array([1.0, 0.6, 0.3])[:d]
    Sigma, M = problem(seed, p, d, s, 1.0)
    A, B = pc.spectral_init(Sigma, M)
    H, K = random_point(seed + 1, p, d, Sigma)
    size = share * math.sqrt(2 * s[-1]) / float(pc.metric_norm(H, K, Sigma))
    A, B = A + size * H, B + size * K
    distance = float(pc.manifold_distance(A, B, Sigma, M))
    convexity, smoothness = pc.one_point_ratio(A, B, Sigma, M, lam, pc.nearest_point(A, B, Sigma, M))
    assert float(smoothness) <= pc.one_point_smoothness(s, lam, distance) * (1 + 1e-9)
    alpha = pc.one_point_convexity(s, p, d, lam, distance)
    if alpha > 0:
        assert float(convexity) >= alpha - 1e-9


@pytest.mark.parametrize("t", [0.1, 0.5, 0.9, 1.0])
def test_one_point_convexity_is_attained_where_the_smallest_pair_collapses(t):
    s = [1.0, 0.6, 0.3]
    Sigma, M = problem(6, 3, 3, s)
    shrunk = pc.gaussian_task(1, [1.0, 0.6, 0.3 * (1 - t) ** 2], kappa=10.0, seed=6).M
    A, B = pc.spectral_init(Sigma, shrunk, tol=0)
    distance = t * math.sqrt(2 * 0.3)
    assert float(pc.manifold_distance(A, B, Sigma, M)) == pytest.approx(distance, rel=1e-9)
    convexity, _ = pc.one_point_ratio(A, B, Sigma, M, 0.5, pc.nearest_point(A, B, Sigma, M))
    assert float(convexity) == pytest.approx(0.3 * (1 - t) * (2 - t), abs=1e-9)
    proved = pc.one_point_convexity(s, 3, 3, 0.5, distance * (1 - 1e-12))
    assert proved == pytest.approx(0.3 * (1 - t) * (2 - t), abs=1e-9)


def test_the_regulariser_buys_the_convexity():
    # Along (U K, -Z K^T) the loss does not change at first order: without the regulariser nothing pulls back.
    s = [1.0, 0.6]
    Sigma, M = problem(7, 2, 2, s)
    U, Z = pc.whiten(*pc.spectral_init(Sigma, M), Sigma)
    stretch = torch.diag(torch.tensor([1.0, 1.3], dtype=torch.float64))
    A, B = pc.unwhiten(U @ stretch, Z @ torch.linalg.inv(stretch), Sigma)
    near = pc.nearest_point(A, B, Sigma, M)
    assert float(pc.manifold_distance(A, B, Sigma, M)) > 0.1
    assert abs(float(pc.one_point_ratio(A, B, Sigma, M, 0.0, near)[0])) < 1e-10
    assert float(pc.one_point_ratio(A, B, Sigma, M, 0.5, near)[0]) > 0.3
    assert pc.one_point_convexity(s, 2, 2, 0.0, 0.1) == 0.0


@pytest.mark.parametrize("keep", [(), (0,), (1,), (0, 2)])
def test_every_other_critical_point_is_a_strict_saddle(keep):
    s = [1.2, 0.8, 0.4]
    Sigma, M = problem(8, 3, 3, s)
    A, B = pc.critical_point(Sigma, M, keep)
    assert max(float(g.abs().max()) for g in pc.population_gradient(A, B, Sigma, M, 0.5)) < 1e-12
    dA, dB, curvature = pc.escape_direction(A, B, Sigma, M)
    left_out = max(value for i, value in enumerate(s) if i not in keep)
    assert float(curvature) == pytest.approx(-left_out, rel=1e-10)
    assert float(pc.metric_norm(dA, dB, Sigma)) == pytest.approx(1, rel=1e-10)
    direction = flat(dA, dB, Sigma)
    H = pc.hessian(A, B, Sigma, M, 0.5)
    assert float(direction @ H @ direction) == pytest.approx(-left_out, rel=1e-9)


@given(seeds, st.sampled_from([(3, 3), (2, 3), (3, 2)]), st.sampled_from([0.05, 1.0, 6.0]))
def test_the_loss_falls_at_every_scale_free_step_with_a_small_constant(seed, shape, size):
    p, d = shape
    Sigma, M = problem(seed, p, d, np.linspace(1.0, 0.5, min(p, d)))
    A, B = (size * part for part in random_point(seed + 1, p, d, Sigma))
    run = pc.descend(A, B, Sigma, M, c=0.3, steps=30, record=1)
    total = run.history.loss + 0.5 * run.history.balance
    assert bool((total.diff() <= 1e-12 * total[:-1]).all())


@given(seeds, st.sampled_from([0.01, 1.0, 25.0]))
def test_random_starts_of_all_scales_converge(seed, size):
    Sigma, M = problem(seed, 4, 4, np.linspace(2.0, 1.0, 4), 100.0)
    A, B = (size * part for part in random_point(seed + 1, 4, 4, Sigma))
    run = pc.descend(A, B, Sigma, M, steps=150, record=[150])
    assert float(run.history.loss[-1]) < 1e-10


def test_bad_input():
    with pytest.raises(ValueError, match="s must be nonnegative"):
        pc.hessian_spectrum([1.0, -0.1], 2, 2, 0.5)
    with pytest.raises(ValueError, match="at most min"):
        pc.hessian_spectrum([1.0, 0.5, 0.2], 2, 3, 0.5)
    with pytest.raises(ValueError, match="not all zero"):
        pc.local_rate([0.0], 1, 1)
    with pytest.raises(ValueError, match="distance must be at least 0"):
        pc.one_point_convexity([1.0], 1, 1, 0.5, -1.0)
    with pytest.raises(ValueError, match="numbers below 2"):
        pc.critical_point(torch.eye(2), torch.eye(2), [2])
