"""What the page `book/preconditioning/right-metric` promises and its build cannot show."""

import math

import numpy as np
import pytest
import torch
from pages import names

from attncore import preconditioning as pc
from attncore.course.check import NotDone, PropertyViolated

NEEDED = ("import ", "def task", "def plain_curvature", "def taken", "def natural_step")


@pytest.fixture(scope="module")
def page():
    return names("preconditioning/right-metric", NEEDED)


def inverse_root(Sigma):
    values, vectors = torch.linalg.eigh(Sigma)
    return (vectors / values.sqrt().unsqueeze(-2)) @ vectors.mT


def plain(A, B, gA, gB, Sigma, lr):
    return A - lr * gA, B - lr * gB


def half(A, B, gA, gB, Sigma, lr):
    inverse = torch.linalg.inv(Sigma)
    return A - lr * gA @ inverse, B - lr * gB @ inverse


def roots(A, B, gA, gB, Sigma, lr):
    root = inverse_root(Sigma)
    return A - lr * gA @ root, B - lr * root @ gB @ root


def stay(A, B, gA, gB, Sigma, lr):
    return A, B


def uphill(A, B, gA, gB, Sigma, lr):
    inverse = torch.linalg.inv(Sigma)
    return A + lr * gA @ inverse, B + lr * inverse @ gB @ inverse


def uneven(A, B, gA, gB, Sigma, lr):
    inverse = torch.linalg.inv(Sigma)
    return A - 3 * lr * gA @ inverse, B - 0.1 * lr * inverse @ gB @ inverse


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["blind_to_coordinates"](page["taken"](page["step"]))


@pytest.mark.parametrize("wrong", [plain, half, roots, stay, uphill])
def test_other_metrics_see_coordinates_and_other_steps_do_not_descend(page, wrong):
    with pytest.raises(PropertyViolated):
        page["blind_to_coordinates"](page["taken"](wrong))


def test_the_solution_passes_and_any_two_multiples(page, capsys):
    for right in (page["natural_step"], uneven):
        page["blind_to_coordinates"](page["taken"](right))
    assert capsys.readouterr().out.count("Holds") == 2


@pytest.mark.parametrize("kappa", [1.0, 7.0])
def test_plain_curvature_is_that_of_the_hessian_in_A_and_B(page, kappa):
    s, d = [1.0, 0.6, 0.3], 3
    Sigma, M = page["task"](s, kappa=kappa)
    A, B = pc.spectral_init(Sigma, M)

    def objective(flat):
        A, B = flat[: d * d].reshape(d, d), flat[d * d:].reshape(d, d)
        U, Z = pc.whiten(A, B, Sigma)
        G = pc.whiten(M, B, Sigma)[0]
        return (U @ Z.T - G).square().sum() / 2 + (U.T @ U - Z.T @ Z).square().sum() / 8

    H = torch.autograd.functional.hessian(objective, torch.cat([A.flatten(), B.flatten()]))
    values = torch.linalg.eigvalsh(H)
    assert page["plain_curvature"](s, kappa) == pytest.approx((float(values[3]), float(values[-1])), rel=1e-7)


@pytest.mark.parametrize("seed", range(30))
def test_the_two_bounds_of_the_lemma(seed):
    rng = np.random.default_rng(seed)
    p, d = rng.integers(1, 6, 2)
    lam = 10 ** rng.uniform(-2, 1)
    U, H = rng.normal(size=(2, 200, p, d))
    Z, K = rng.normal(size=(2, 200, d, d))
    nu = math.sqrt(max(1, 2 * lam))

    def t(x):
        return np.swapaxes(x, -1, -2)

    def norm(first, second):
        return np.sqrt((first**2).sum((1, 2)) + lam / 2 * (second**2).sum((1, 2)))

    size = np.sqrt((H**2).sum((1, 2)) + (K**2).sum((1, 2)))
    q = norm(H @ t(K), t(H) @ H - t(K) @ K)
    assert (q <= nu / 2 * size**2 * (1 + 1e-12)).all()
    J = norm(H @ t(Z) + U @ t(K), t(H) @ U + t(U) @ H - t(K) @ Z - t(Z) @ K)
    a = np.maximum(np.linalg.norm(U, 2, (1, 2)), np.linalg.norm(Z, 2, (1, 2)))
    assert (J <= nu * math.sqrt(2) * a * size * (1 + 1e-12)).all()


@pytest.mark.parametrize("lam", [0.25, 0.5, 1.0, 3.0])
def test_the_lemma_is_sharp_on_the_minimisers(lam):
    # |J|^2 is the largest curvature: 2 s_1 max(1, 2 lam) for p = d = r.
    Sigma, M = torch.eye(3, dtype=torch.float64), torch.diag(torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64))
    H = pc.hessian(*pc.spectral_init(Sigma, M), Sigma, M, lam)
    assert float(torch.linalg.eigvalsh(H)[-1]) == pytest.approx(2 * 2.0 * max(1, 2 * lam), rel=1e-10)


@pytest.mark.parametrize("lam, tau", [(0.5, 1.0), (2.0, 1.0), (0.0, 3.0)])
def test_one_dimension_by_hand(lam, tau):
    s, one = 0.7, torch.ones(1, 1, dtype=torch.float64)
    root = math.sqrt(s)
    found = torch.linalg.eigvalsh(pc.hessian(root * tau * one, root / tau * one, one, s * one, lam))
    expected = sorted([s * (tau**2 + tau**-2), 4 * lam * s])
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("t", [0.2, 0.6, 1.0])
def test_one_point_convexity_by_hand(t):
    s, one = 0.7, torch.ones(1, 1, dtype=torch.float64)
    star, w = math.sqrt(s) * one, (1 - t) * math.sqrt(s) * one
    convexity, _ = pc.one_point_ratio(w, w, one, s * one, 0.5, (star, star))
    assert float(convexity) == pytest.approx(s * (1 - t) * (2 - t), abs=1e-12)


@pytest.mark.parametrize("kappa", [1.0, 10.0, 100.0])
def test_the_flat_block_has_its_own_clock(kappa):
    """The law against descent with a short step: (8F)^(-1/2) grows by one per unit of time if d - r = 1."""
    t = pc.gaussian_task(1, [1.0, 0.6], d=3, p=3, kappa=kappa, seed=3)
    U, Z = pc.whiten(*pc.spectral_init(t.Sigma, t.M), t.Sigma)
    left, right = (torch.linalg.svd(x)[k] for x, k in ((U, 0), (Z, 2)))
    null = right[-1]
    U, Z = U + 0.5 * torch.outer(left[:, -1], null), Z - 0.3 * torch.outer(null, null)
    run = pc.descend(*pc.unwhiten(U, Z, t.Sigma), t.Sigma, t.M, lr=0.01, steps=2000, record=[0])
    clock = (8 * (run.history.loss + run.history.balance / 2)) ** -0.5
    assert float(clock[0]) == pytest.approx(1 / (0.5**2 + 0.3**2), rel=1e-9)
    assert float(clock[1] - clock[0]) == pytest.approx(20, rel=1e-3)
