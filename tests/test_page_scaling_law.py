"""What the page `book/preconditioning/scaling-law` promises and its build cannot show."""

import numpy as np
import pytest
import torch
from pages import names

from attncore import preconditioning as pc
from attncore.course.check import NotDone, PropertyViolated

NEEDED = ("import ", "def bias_constant", "def is_better_mean", "def by_the_ratio")


@pytest.fixture(scope="module")
def page():
    return names("preconditioning/scaling-law", NEEDED)


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["is_better_mean"](page["mean_after"])


@pytest.mark.parametrize("wrong, says", [
    (lambda after, before, known: after.mean(), "half the squared error"),
    (lambda after, before, known: after.mean() + before.mean() - known, "half the squared error"),
    (lambda after, before, known: known, "nearly unbiased"),
    (lambda after, before, known: np.median(after), "nearly unbiased"),
    (lambda after, before, known: np.nan, "finite"),
])
def test_wrong_means_are_refused(page, wrong, says):
    with pytest.raises(PropertyViolated, match=says):
        page["is_better_mean"](wrong)


def by_regression(after, before, known):
    slope, _ = np.polyfit(before, after, 1)
    return after.mean() + slope * (known - before.mean())


def mean_of_ratios(after, before, known):
    return known * (after / before).mean()


def by_the_difference(after, before, known):
    return after.mean() + known - before.mean()


@pytest.mark.parametrize("right", [by_regression, mean_of_ratios, by_the_difference])
def test_other_right_means_pass(page, right):
    page["is_better_mean"](right)


@pytest.mark.parametrize("s", [[0.7], [1.0, 0.2], [0.5, 0.5, 0.5], [2.0, 0.9, 0.4, 0.1]])
def test_the_bias_constant_is_the_second_derivative(page, s):
    """Against second differences of the learned map, on spectra that the page does not use."""
    M, d, h = torch.diag(torch.tensor(s).double()), len(s), 1e-3
    eye, total = torch.eye(d, dtype=torch.float64), 0.0

    def learned(W):
        A, B = pc.spectral_init(W, M)
        return A @ B.mT

    for i in range(d):
        for j in range(i, d):
            D = torch.zeros_like(eye)
            D[i, j] = D[j, i] = h
            change = learned(eye + D) + learned(eye - D) - 2 * learned(eye)
            total = total + (2 if i == j else 1) * change / (2 * h**2)
    expected = np.diag(page["bias_constant"](np.array(s)))
    np.testing.assert_allclose(total, expected, atol=1e-4 * max(s) * d**2)


def test_one_dimension_is_explicit():
    """The exercise: mean and risk of M / Sigma_hat, by simulation at n = 20."""
    n, M = 20, 0.8
    X = torch.tensor(np.random.default_rng(0).normal(size=(200_000, n, 1)))
    found = pc.estimate(X, M * X)
    A, B = pc.spectral_init(found.Sigma, found.M)
    learned = (A * B).flatten().numpy()
    for value, expected in ((learned, M * n / (n - 2)),
                            ((learned - M) ** 2 / 2, M**2 / 2 * (2 * n + 8) / ((n - 2) * (n - 4)))):
        assert abs(value.mean() - expected) < 5 * value.std() / len(value) ** 0.5


def test_least_squares_has_the_minimax_risk_and_is_what_a_known_covariance_gives():
    task = pc.gaussian_task(20, [0.6, 0.3, 0.1], p=4, kappa=30, noise=0.5, batch=4000, seed=2)
    found = pc.estimate(task.X, task.Y)
    A, B = pc.spectral_init(task.Sigma, found.M)
    risk = pc.population_loss(A, B, task.Sigma, task.M)
    expected = 0.5**2 * 4 * 3 / (2 * (20 - 3 - 1))
    assert abs(risk.mean() - expected) < 5 * risk.std() / 4000**0.5
