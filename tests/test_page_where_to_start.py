"""What the page `book/preconditioning/where-to-start` promises and its build cannot show."""

import math

import numpy as np
import pytest
import torch
from pages import names

from attncore import preconditioning as pc
from attncore.course.check import NotDone, PropertyViolated

NEEDED = ("import ", "def starts", "def library_gauge", "def law", "def canonical", "def polar_gauge")


@pytest.fixture(scope="module")
def page():
    return names("preconditioning/where-to-start", NEEDED)


def positive_part(U, Z):
    values, vectors = torch.linalg.eigh((Z + Z.mT) / 2)
    return U, (vectors * values.abs().unsqueeze(-2)) @ vectors.mT


def other_side(U, Z):
    left, _, right = torch.linalg.svd(Z)
    return U @ left @ right, right.mT @ left.mT @ Z


def negative(U, Z):
    left, _, right = torch.linalg.svd(Z)
    T = right.mT @ left.mT
    return -U @ T, -Z @ T


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["gauge_fixed"](page["canonical"](*page["factors"]))


@pytest.mark.parametrize("wrong", [
    lambda U, Z: (U, Z),
    lambda U, Z: (U, (Z + Z.mT) / 2),
    lambda U, Z: (U @ Z.mT, torch.eye(4, dtype=U.dtype).expand(5, 4, 4)),
    positive_part, other_side, negative,
])
def test_wrong_gauges_violate_a_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["gauge_fixed"](wrong(*page["factors"]))


def test_the_solution_passes_and_so_does_the_symmetric_root(page, capsys):
    U, Z = page["factors"]
    page["gauge_fixed"](page["polar_gauge"](U, Z))
    values, vectors = torch.linalg.eigh(Z @ Z.mT)
    root = (vectors * values.sqrt().unsqueeze(-2)) @ vectors.mT
    page["gauge_fixed"]((U @ torch.linalg.solve(Z, root), root))
    assert capsys.readouterr().out.count("Holds") == 2


@pytest.mark.parametrize("p, d, s", [(3, 3, [1.0, 0.6, 0.3]), (5, 3, [1.0, 0.6, 0.3]), (2, 4, [1.0, 0.6]),
                                     (4, 4, [1.0, 0.6]), (3, 3, [1.0, 1.0, 0.5])])
def test_the_distance_to_second_order(p, d, s):
    """The lemma, in the frame of the start, at perturbations without a part along the manifold."""
    r, size = len(s), 1e-5
    rng = np.random.default_rng(p * d)
    S = np.append(s, np.zeros(d - r))
    half = np.zeros((max(p, d), d))
    half[:d, :d] = np.diag(np.sqrt(S))
    U0, Z0 = half[:p], half[:d]
    H, K = rng.normal(size=(p, d)), rng.normal(size=(d, d))
    for i in range(d):                       # remove the tangent vectors (U0 T, Z0 T), T antisymmetric
        for j in range(i):
            T = np.zeros((d, d))
            T[i, j], T[j, i] = 1, -1
            tU, tZ = U0 @ T, Z0 @ T
            share = ((H * tU).sum() + (K * tZ).sum()) / max((tU**2).sum() + (tZ**2).sum(), 1e-300)
            H, K = H - share * tU, K - share * tZ
    U, Z = U0 + size * H, Z0 + size * K
    M = np.zeros((p, d))
    M[:r, :r] = np.diag(s)
    square = float(pc.manifold_distance(U, Z, np.eye(d), M)) ** 2
    E, D = U @ Z.T - M, U.T @ U - Z.T @ Z
    pairs = S[:, None] + S
    weight = np.where(pairs > 0, 1 / np.where(pairs > 0, pairs, 1), 0)
    rows = np.vstack([weight, np.tile(np.where(S > 0, 1 / np.where(S > 0, S, 1), 0), (max(p - d, 0), 1))])[:p]
    flat = (U[r:, r:] ** 2).sum() + (Z[r:, r:] ** 2).sum()
    assert (rows * E**2).sum() + (weight * D**2).sum() / 4 + flat == pytest.approx(square, rel=1e-3)


def test_the_mean_of_the_limit_law(page):
    s, noise = np.array([1.0, 0.5, 0.2]), 0.4
    rng = np.random.default_rng(0)
    g, theta = rng.normal(size=(2, 100_000, 3, 3))
    theta = (theta + np.swapaxes(theta, 1, 2)) / math.sqrt(2)
    scale, pair = np.sqrt(np.outer(s, s)), s[:, None] + s
    draws = (((noise * g - scale * theta) ** 2 + (scale * theta) ** 2 / 4) / pair).sum((1, 2))
    assert page["law"](s, 3, 3, noise) == pytest.approx(draws.mean(), rel=0.02)


def test_only_the_polar_start_commutes_with_a_change_of_coordinates(page):
    t = pc.gaussian_task(1, [1.0, 0.6, 0.3], kappa=10, seed=5)
    C = torch.tensor(np.random.default_rng(2).normal(size=(3, 3)))
    Ci = torch.linalg.inv(C)
    gaps = []
    for start in (pc.spectral_init, page["library_gauge"]):
        A, B = start(t.Sigma, t.M)
        A2, B2 = start(C @ t.Sigma @ C.T, t.M @ Ci)
        gaps.append(float((A2 @ C - A).norm() + (C.T @ B2 @ C - B).norm()))
    assert gaps[0] < 1e-9 and gaps[1] > 0.1


def test_another_gauge_keeps_the_mean_of_the_distance_and_not_its_law():
    """The solution of "The gauge and the risk": T exchanges the two right singular vectors, sigma = 0."""
    n, seeds = 400, 4000
    t = pc.gaussian_task(n, [1.0, 0.02], kappa=1.0, seed=0, batch=seeds)
    e = pc.estimate(t.X, t.Y)
    U, Z = pc.whiten(*pc.spectral_init(e.Sigma, e.M), e.Sigma)
    right = torch.linalg.svd(t.M)[2].mT                       # Sigma = I at kappa = 1
    turn = right @ torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64) @ right.mT
    laws = [n * pc.manifold_distance(*pc.unwhiten(*w, e.Sigma), t.Sigma, t.M).square()
            for w in ((U, Z), (U @ turn, Z @ turn))]
    assert abs(laws[1].mean() / laws[0].mean() - 1) < 0.1
    assert abs(laws[1].var() / laws[0].var() - 17 / 25) < 0.15
