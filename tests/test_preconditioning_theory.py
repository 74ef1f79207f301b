"""Closed forms of the experiments, each against simulation or quadrature, and the generator of tasks."""

import math

import numpy as np
import pytest
import torch

from attncore import preconditioning as pc


def measured_mse(A, B, Sigma, x, n, draws, seed=0):
    """Mean square error of attention at query x over fresh contexts of n tokens."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(Sigma.numpy())
    context = torch.from_numpy(rng.standard_normal((draws, n, len(root))) @ root.T)
    out = pc.attention_output(A, B, x.expand(draws, 1, -1), context)[:, 0]
    return float((out - A @ Sigma @ B.T @ x).square().sum(-1).mean())


@pytest.mark.parametrize("radius", [0.0, 0.3])
def test_attention_noise_at_a_query(radius):
    data = pc.gaussian_task(1, [0.4, 0.3], kappa=5.0, seed=0)
    A, B = pc.spectral_init(data.Sigma, data.M)
    x = radius * torch.tensor([1.0, 1.5], dtype=torch.float64)
    n = 500
    expected = float(pc.attention_mse(A, B, data.Sigma, x))
    assert n * measured_mse(A, B, data.Sigma, x, n, 4000) == pytest.approx(expected, rel=0.1)


def test_mean_attention_noise_is_the_average_and_ends_at_one_half():
    data = pc.gaussian_task(1, [0.3, 0.2], kappa=5.0, seed=0)
    A, B = pc.spectral_init(data.Sigma, data.M)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    root = pc.whiten(data.Sigma, data.Sigma, torch.linalg.inv(data.Sigma))[0].numpy()
    white = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    queries = torch.from_numpy(white @ root)
    values = pc.attention_mse(A, B, data.Sigma, queries).numpy()
    average = (values * np.outer(weights, weights).ravel()).sum() / weights.sum() ** 2
    assert float(pc.mean_attention_mse(A, B, data.Sigma)) == pytest.approx(average, rel=1e-8)
    for top, finite in ((0.49, True), (0.51, False)):
        data = pc.gaussian_task(1, [top, 0.2], seed=0)
        value = pc.mean_attention_mse(*pc.spectral_init(data.Sigma, data.M), data.Sigma)
        assert bool(torch.isfinite(value)) is finite


def test_exponent_leaves_one_at_one_half():
    assert pc.mse_exponent(0.5) == pytest.approx(1) and pc.mse_exponent(0.2) == 1
    assert pc.mse_exponent(2.0) == pytest.approx((math.sqrt(3) - 1) / 2)
    with pytest.raises(ValueError, match="s1 must be greater than 0"):
        pc.mse_exponent(0.0)


@pytest.mark.parametrize("kappa, noise, p, d", [(1.0, 0.0, 3, 3), (100.0, 0.3, 3, 3), (10.0, 0.3, 2, 4)])
def test_risk_of_the_spectral_start(kappa, noise, p, d):
    s = np.linspace(0.3, 0.1, min(p, d))
    data = pc.gaussian_task(3000, s, d=d, p=p, kappa=kappa, noise=noise, seed=1, batch=150)
    found = pc.estimate(data.X, data.Y)
    risk = float(pc.population_loss(*pc.spectral_init(found.Sigma, found.M), data.Sigma, data.M).mean())
    assert 3000 * risk == pytest.approx(pc.start_risk(s, p, d, noise), rel=0.15)


def test_copying_beats_the_minimisers_on_the_sample_and_is_useless_off_it():
    data = pc.gaussian_task(300, np.linspace(3.0, 2.0, 32), seed=0)
    copy, start = pc.copy_solution(data.Sigma, data.M, 8.0), pc.spectral_init(data.Sigma, data.M)
    on = [float(pc.empirical_loss(*w, data.X, data.Y)) for w in (copy, start)]
    assert on[0] < 0.5 * on[1]
    G2 = float(pc.singular_values(data.Sigma, data.M).square().sum())
    assert float(pc.population_loss(*copy, data.Sigma, data.M)) == pytest.approx(49 * G2 / 2, rel=1e-10)


def test_tasks_have_the_spectrum_and_conditioning_asked_for():
    data = pc.gaussian_task(50_000, [0.5, 0.2], d=3, p=4, kappa=25.0, noise=0.3, seed=2)
    eigenvalues = torch.linalg.eigvalsh(data.Sigma)
    assert float(eigenvalues[-1] / eigenvalues[0]) == pytest.approx(25)
    s = pc.singular_values(data.Sigma, data.M)
    torch.testing.assert_close(s, torch.tensor([0.5, 0.2, 0.0], dtype=torch.float64), rtol=0, atol=1e-12)
    sample = data.X.T @ data.X / 50_000
    assert float((sample - data.Sigma).abs().max()) < 0.03
    residual = data.Y - data.X @ data.M.T
    assert float(residual.square().mean()) == pytest.approx(0.09, rel=0.02)


def test_tasks_are_seeded_and_paired():
    one, two = (pc.gaussian_task(10, [0.5, 0.2], kappa=k, seed=1, batch=3) for k in (1.0, 9.0))
    alone = pc.gaussian_task(10, [0.5, 0.2], kappa=9.0, seed=1, batch=2)
    assert torch.equal(alone.X, two.X[:2])
    assert not torch.equal(two.X[0], two.X[1])
    torch.testing.assert_close(one.Y, two.Y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(s=[0.5, -0.1]), "s must be"),
        (dict(d=1), "at most min"),
        (dict(kappa=0.5), "kappa must be at least 1"),
        (dict(noise=-1.0), "noise must be at least 0"),
        (dict(n=0), "n must be at least 1"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        pc.gaussian_task(**(dict(n=10, s=[0.5, 0.2]) | change))
