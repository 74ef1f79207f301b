"""Population loss, regulariser, gradients and metric: reference values, identities, symmetries, bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attncore import preconditioning as pc

ORACLES = json.loads((Path(__file__).parent / "oracles" / "preconditioning.json").read_text())
POPULATION = ORACLES["population"]


def close(found, expected, rtol=1e-12):
    """Relative to the largest entry of the reference."""
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=rtol * float(expected.abs().max()))


def case(seed, p=3, d=3, kappa=30.0):
    """Random point, covariance of condition number kappa, map."""
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(rng.standard_normal((d, d)))[0]
    Sigma = (V * kappa ** -np.linspace(0, 1, d)) @ V.T
    arrays = rng.standard_normal((p, d)), rng.standard_normal((d, d)), Sigma, rng.standard_normal((p, d))
    return [torch.from_numpy(a) for a in arrays]


seeds = st.integers(0, 10**6)
sizes = st.integers(1, 5)


@pytest.mark.parametrize("record", POPULATION, ids=lambda record: record["name"])
def test_reference_values(record):
    A, B, Sigma, M, lam = (record[k] for k in ("A", "B", "Sigma", "M", "lam"))
    close(pc.population_loss(A, B, Sigma, M), record["pop_excess_loss"])
    close(pc.balance(A, B, Sigma), record["reg_over_lambda"])
    close(pc.metric_norm(A, B, Sigma) ** 2, record["P_norm2"])
    plain, full = pc.population_gradient(A, B, Sigma, M, 0), pc.population_gradient(A, B, Sigma, M, lam)
    for side, name in enumerate("AB"):
        close(plain[side], record[f"gradL_{name}"])
        close(full[side] - plain[side], record[f"gradR_{name}"])
        start = torch.tensor(record[name], dtype=torch.float64)
        close(start - record["eta"] * pc.precondition(*full, Sigma)[side], record[f"step_{name}"])


@given(seeds, sizes, sizes, st.sampled_from([0.0, 0.3, 0.5, 2.0]))
def test_gradient_is_that_of_autograd(seed, p, d, lam):
    A, B, Sigma, M = case(seed, p, d)
    A, B = A.requires_grad_(), B.requires_grad_()
    value = pc.population_loss(A, B, Sigma, M) + lam * pc.balance(A, B, Sigma)
    for found, expected in zip(
        pc.population_gradient(A.detach(), B.detach(), Sigma, M, lam), torch.autograd.grad(value, (A, B)), strict=True
    ):
        close(found, expected, 1e-11)


@given(seeds, sizes, sizes)
def test_a_preconditioned_step_is_a_plain_step_in_the_whitened_factors(seed, p, d):
    A, B, Sigma, M = case(seed, p, d)
    eta, lam = 0.1, 0.4
    dA, dB = pc.precondition(*pc.population_gradient(A, B, Sigma, M, lam), Sigma)
    found = pc.whiten(A - eta * dA, B - eta * dB, Sigma)
    U, Z = pc.whiten(A, B, Sigma)
    eye, G = torch.eye(d, dtype=torch.float64), pc.whiten(M, B, Sigma)[0]
    gU, gZ = pc.population_gradient(U, Z, eye, G, lam)
    close(found[0], U - eta * gU, 1e-10)
    close(found[1], Z - eta * gZ, 1e-10)


@given(seeds, sizes, sizes)
def test_preconditioning_gives_the_gradient_of_the_metric(seed, p, d):
    A, B, Sigma, M = case(seed, p, d)
    gA, gB = pc.population_gradient(A, B, Sigma, M, 0.5)
    nA, nB = pc.precondition(gA, gB, Sigma)
    H, K, _, _ = case(seed + 1, p, d)
    euclidean = (gA * H).sum() + (gB * K).sum()
    metric = (nA @ Sigma * H).sum() + (Sigma @ nB @ Sigma * K).sum()
    close(metric, euclidean, 1e-9 * max(1.0, float(pc.metric_norm(gA, gB, Sigma) / euclidean.abs())))


@given(seeds, sizes, sizes)
def test_the_loss_ignores_scales_and_the_sum_ignores_rotations(seed, p, d):
    A, B, Sigma, M = case(seed, p, d)
    U, Z = pc.whiten(A, B, Sigma)
    O, _ = torch.linalg.qr(case(seed + 1, p, d)[1])
    turned = pc.unwhiten(U @ O, Z @ O, Sigma)
    scaled = pc.unwhiten(3 * U, Z / 3, Sigma)
    loss, uneven = pc.population_loss(A, B, Sigma, M), pc.balance(A, B, Sigma)
    close(pc.population_loss(*turned, Sigma, M), loss, 1e-10)
    close(pc.balance(*turned, Sigma), uneven, 1e-10)
    close(pc.population_loss(*scaled, Sigma, M), loss, 1e-10)
    assert pc.balance(*scaled, Sigma) > uneven or float(uneven) > 0.01


@given(seeds, sizes, sizes)
def test_product_and_imbalance_make_up_the_gram_matrices(seed, p, d):
    # |U Z^T|^2 + 1/4 |U^T U - Z^T Z|^2 = 1/4 |U^T U + Z^T Z|^2: why lam = 1/2 is natural, and the sum coercive.
    A, B, Sigma, M = case(seed, p, d)
    U, Z = pc.whiten(A, B, Sigma)
    left = 2 * pc.population_loss(A, B, Sigma, 0 * M) + pc.balance(A, B, Sigma)
    close(left, (U.T @ U + Z.T @ Z).square().sum() / 4, 1e-10)


def test_the_tilt_makes_attention_linear():
    # E[x e^{b x}]/E[e^{b x}] = Sigma b, by quadrature in one dimension, then the layer over very many tokens.
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    sigma, b = 1.7, 0.4
    tilted = weights * np.exp(b * sigma * nodes)
    assert (tilted * sigma * nodes).sum() / tilted.sum() == pytest.approx(sigma**2 * b, rel=1e-12)
    task = pc.gaussian_task(200_000, [0.3, 0.2], kappa=5, seed=3)
    A, B = pc.spectral_init(task.Sigma, task.M)
    out = pc.attention_output(A, B, task.X[:50], task.X)
    assert float((out - task.X[:50] @ task.M.T).abs().max()) < 0.02


def test_batches_broadcast_and_agree_with_single_problems():
    A, B, Sigma, M = (torch.stack(parts) for parts in zip(case(1), case(2), strict=True))
    both = pc.population_gradient(A[:, None], B[:, None], Sigma, M[:, None], 0.5)
    assert both[0].shape == (2, 2, 3, 3)
    one = pc.population_gradient(A[1], B[1], Sigma[0], M[1], 0.5)
    close(both[0][1, 0], one[0])
    close(pc.population_loss(A, B, Sigma, M)[1], pc.population_loss(A[1], B[1], Sigma[1], M[1]))


def test_integers_and_float32():
    assert pc.population_loss([[2]], [[1]], [[1]], [[1]]).dtype == torch.float64
    arrays = [t.float() for t in case(0)]
    assert pc.population_loss(*arrays).dtype == torch.float32


@pytest.mark.parametrize(
    "change, error, message",
    [
        (dict(Sigma=[[1.0, 0.0], [0.0, 0.0]]), ValueError, "Sigma must be positive definite"),
        (dict(Sigma=[[1.0, 0.5], [0.0, 1.0]]), ValueError, "Sigma must be symmetric"),
        (dict(Sigma=[1.0, 1.0]), ValueError, "Sigma must have shape"),
        (dict(A=[[1.0, 2.0, 3.0]]), ValueError, "A must have shape"),
        (dict(B=[[1.0, 2.0]]), ValueError, "B must have shape"),
        (dict(M=[[1.0, 2.0], [3.0, 4.0]]), ValueError, "M must have shape"),
        (dict(A="text"), TypeError, "A must be"),
        (dict(M=[[float("nan"), 0.0]]), ValueError, "M must be finite"),
        (dict(A=torch.zeros(3, 1, 2), B=torch.zeros(2, 2, 2)), ValueError, "leading axes"),
    ],
)
def test_bad_input(change, error, message):
    given = dict(A=[[1.0, 2.0]], B=[[1.0, 0.0], [0.0, 1.0]], Sigma=[[1.0, 0.0], [0.0, 1.0]], M=[[1.0, 1.0]]) | change
    with pytest.raises(error, match=message):
        pc.population_loss(**given)


def test_bad_weight():
    with pytest.raises(ValueError, match="lam must be at least 0"):
        pc.population_gradient([[1.0]], [[1.0]], [[1.0]], [[1.0]], -1)
    with pytest.raises(TypeError, match="lam must be a real number"):
        pc.population_gradient([[1.0]], [[1.0]], [[1.0]], [[1.0]], "half")
