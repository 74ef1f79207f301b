"""Spectral start, nearest point, distance: reference values, symmetry, direct minimisation, rank, topology."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from attncore import preconditioning as pc

POPULATION = json.loads((Path(__file__).parent / "oracles" / "preconditioning.json").read_text())["population"]
seeds = st.integers(0, 10**6)


def close(found, expected, rtol=1e-12):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=rtol * float(expected.abs().max()))


def point(seed, p, d):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((p, d))), torch.from_numpy(rng.standard_normal((d, d)))


def problem(seed, p=3, d=3, rank=None, kappa=20.0):
    s = np.linspace(1.5, 0.5, min(p, d) if rank is None else rank)
    task = pc.gaussian_task(1, s, d=d, p=p, kappa=kappa, seed=seed)
    return task.Sigma, task.M


@pytest.mark.parametrize("record", POPULATION, ids=lambda record: record["name"])
def test_reference_values(record):
    A, B, Sigma, M = (record[k] for k in ("A", "B", "Sigma", "M"))
    A0, B0 = pc.spectral_init(Sigma, M)
    close(A0, record["polar_A0"])
    close(B0, record["polar_B0"])
    close(pc.manifold_distance(A, B, Sigma, M), record["dist_P"])
    close(pc.singular_values(Sigma, M), record["G_singular_values"][: min(record["p"], record["d"])])
    if record["nearest_A"] is not None:
        nearA, nearB = pc.nearest_point(A, B, Sigma, M)
        close(nearA, record["nearest_A"])
        close(nearB, record["nearest_B"])


@given(seeds, st.integers(1, 5), st.integers(1, 5))
def test_the_start_is_a_balanced_minimiser(seed, p, d):
    Sigma, M = problem(seed, p, d)
    A0, B0 = pc.spectral_init(Sigma, M)
    close(A0 @ Sigma @ B0.T, M, 1e-11)
    assert float(pc.population_loss(A0, B0, Sigma, M)) < 1e-20
    assert float(pc.balance(A0, B0, Sigma)) < 1e-20
    assert float(pc.manifold_distance(A0, B0, Sigma, M)) < 1e-12
    Z = pc.whiten(A0, B0, Sigma)[1]
    close(Z, Z.T, 1e-12)


@given(seeds)
def test_the_start_turns_with_the_coordinates(seed):
    # Free of signs: rotating tokens and targets rotates the start, whatever columns LAPACK returns.
    Sigma, M = problem(seed)
    O, _ = torch.linalg.qr(point(seed, 3, 3)[0])
    V, _ = torch.linalg.qr(point(seed, 3, 3)[1])
    A0, B0 = pc.spectral_init(Sigma, M)
    A1, B1 = pc.spectral_init(O @ Sigma @ O.T, V @ M @ O.T)
    close(A1, V @ A0 @ O.T, 1e-11)
    close(B1, O @ B0 @ O.T, 1e-11)


@pytest.mark.parametrize("p, d, rank", [(2, 2, None), (3, 2, None), (1, 2, None), (3, 3, 2)])
def test_distance_is_that_of_direct_minimisation(p, d, rank):
    Sigma, M = problem(4, p, d, rank)
    A, B = point(5, p, d)
    U, Z = pc.whiten(A, B, Sigma)
    G = pc.whiten(M, B, Sigma)[0]
    P, S, Qt = np.linalg.svd(G.numpy(), full_matrices=False)
    r = int((S > 1e-9).sum())
    left, right, half = P[:, :r], Qt[:r].T, np.sqrt(S[:r])[:, None]

    planes = [(i, j) for i in range(d) for j in range(i)]

    def squared(theta, flip):
        # Every orthogonal matrix is a product of plane rotations, times one reflection if its determinant is -1.
        O = np.diag([flip] + [1.0] * (d - 1))
        for angle, (i, j) in zip(theta, planes, strict=True):
            turn = np.eye(d)
            turn[[i, j], [i, j]], turn[i, j], turn[j, i] = np.cos(angle), -np.sin(angle), np.sin(angle)
            O = O @ turn
        near = half * O[:r]
        return ((left @ near - U.numpy()) ** 2).sum() + ((right @ near - Z.numpy()) ** 2).sum()

    starts = np.random.default_rng(0).uniform(-3, 3, (12, len(planes)))
    best = min(minimize(squared, x0, (flip,), tol=1e-12).fun for flip in (1.0, -1.0) for x0 in starts)
    assert float(pc.manifold_distance(A, B, Sigma, M)) ** 2 == pytest.approx(best, rel=1e-9)
    formula = (U**2).sum() + (Z**2).sum() + 2 * S.sum()
    formula -= 2 * np.linalg.svd(half * (left.T @ U.numpy() + right.T @ Z.numpy()), compute_uv=False).sum()
    assert float(pc.manifold_distance(A, B, Sigma, M)) ** 2 == pytest.approx(float(formula), rel=1e-11)


@given(seeds, st.sampled_from([(3, 3, 3), (4, 2, 2), (2, 4, 2), (3, 3, 1)]))
def test_the_nearest_point_is_a_minimiser_and_the_difference_is_normal(seed, shape):
    p, d, rank = shape
    Sigma, M = problem(seed, p, d, rank)
    A, B = point(seed + 1, p, d)
    nearA, nearB = pc.nearest_point(A, B, Sigma, M)
    close(nearA @ Sigma @ nearB.T, M, 1e-10)
    assert float(pc.balance(nearA, nearB, Sigma)) < 1e-18
    U, Z = pc.whiten(A - nearA, B - nearB, Sigma)
    atU, atZ = pc.whiten(nearA, nearB, Sigma)
    # Tangents at the nearest point are (U* K, Z* K), K skew: orthogonal to the difference.
    skew = atU.T @ U + atZ.T @ Z
    close(skew, skew.T, 1e-10)


def test_distance_stays_accurate_near_zero():
    Sigma, M = problem(0, kappa=1.0)
    A0, B0 = pc.spectral_init(Sigma, M)
    step = torch.zeros_like(A0)
    step[0, 0] = 1.0
    along = pc.manifold_distance(A0 + 1e-3 * step, B0, Sigma, M) / 1e-3
    near = pc.manifold_distance(A0 + 1e-11 * step, B0, Sigma, M) / 1e-11
    assert float(near) == pytest.approx(float(along), rel=1e-2)
    assert float(near) > 0.1


def test_two_components_if_the_rank_is_full_and_one_otherwise():
    # det B has one sign on each component; below full rank a rotation of the null block joins the two.
    Sigma, M = problem(1)
    A0, B0 = pc.spectral_init(Sigma, M)
    U, Z = pc.whiten(A0, B0, Sigma)
    flip = torch.diag(torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64))
    other = pc.unwhiten(U @ flip, Z @ flip, Sigma)
    assert float(pc.manifold_distance(*other, Sigma, M)) < 1e-12
    assert float(torch.linalg.det(other[1]) * torch.linalg.det(B0)) < 0
    Sigma, M = problem(1, p=2, d=3)
    U, Z = pc.whiten(*pc.spectral_init(Sigma, M), Sigma)
    null = torch.linalg.svd(Z)[2][-1]
    reflect = torch.eye(3, dtype=torch.float64) - 2 * torch.outer(null, null)
    close(U @ reflect, U, 1e-12)
    close(Z @ reflect, Z, 1e-12)


def test_rank_of_an_estimate_is_cut_on_request():
    task = pc.gaussian_task(4000, [0.3, 0.2], d=4, p=4, noise=0.3, seed=1)
    whole = pc.fit(task.X, task.Y, steps=0, tau=1.0)
    cut = pc.fit(task.X, task.Y, steps=0, tau=1.0, rank=2)
    assert int((pc.singular_values(cut.Sigma, cut.A @ cut.Sigma @ cut.B.T) > 1e-9).sum()) == 2
    distances = [float(pc.manifold_distance(f.A, f.B, task.Sigma, task.M)) for f in (whole, cut)]
    assert distances[1] < 0.6 * distances[0]


def test_batches_and_bad_input():
    pairs = [problem(seed, kappa=k) for seed, k in ((0, 1.0), (1, 50.0))]
    Sigma, M = (torch.stack(parts) for parts in zip(*pairs, strict=True))
    A0, B0 = pc.spectral_init(Sigma, M)
    close(A0[1], pc.spectral_init(Sigma[1], M[1])[0])
    assert pc.manifold_distance(A0 + 1, B0, Sigma, M).shape == (2,)
    with pytest.raises(ValueError, match="M must have shape"):
        pc.spectral_init(Sigma, M[..., :2])
    with pytest.raises(ValueError, match="rank must be at least 1"):
        pc.spectral_init(Sigma, M, rank=0)
    with pytest.raises(TypeError, match="rank must be an integer"):
        pc.spectral_init(Sigma, M, rank=1.5)
    with pytest.raises(ValueError, match="positive definite"):
        pc.spectral_init([[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0]])
