"""What the page `book/preconditioning/algorithm` promises and its build cannot show."""

import numpy as np
import pytest
import torch
from pages import names

from attncore import preconditioning as pc
from attncore.course.check import NotDone, PropertyViolated

NEEDED = ("import ", "def by_proposition", "def noise_constant", "def is_natural", "def by_cholesky")


@pytest.fixture(scope="module")
def page():
    """The names of the page; the cell of the scale of targets also draws its data."""
    return names("preconditioning/algorithm", NEEDED)


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["is_natural"](page["direction"])


@pytest.mark.parametrize("wrong, says", [
    (lambda gA, gB, S: (gA, gB), "other coordinates"),
    (lambda gA, gB, S: (gA @ torch.linalg.inv(S), gB), "other coordinates"),
    (lambda gA, gB, S: tuple(0.5 * m for m in natural(gA, gB, S)), "squared length"),
    (lambda gA, gB, S: tuple(-m for m in natural(gA, gB, S)), "squared length"),
    (lambda gA, gB, S: natural(gA, gB, S)[0], "a pair"),
    (lambda gA, gB, S: (torch.nan * gA, gB), "finite"),
    (lambda gA, gB, S: (0 * gA, 0 * gB), "squared length"),
])
def test_wrong_directions_are_refused(page, wrong, says):
    with pytest.raises(PropertyViolated, match=says):
        page["is_natural"](wrong)


def natural(gA, gB, S):
    inverse = torch.linalg.inv(S)
    return gA @ inverse, inverse @ gB @ inverse


@pytest.mark.parametrize("right", [natural, pc.precondition])
def test_right_directions_pass(page, right):
    page["is_natural"](right)


def test_the_default_scale_is_within_the_proved_factor(page):
    """Spectra other than those of the page, the worst case of the proof (one value) among them."""
    rng = np.random.default_rng(8)
    for s in [np.ones(1), np.ones(4), np.ones(40), *(rng.random(6) ** 3 for _ in range(20))]:
        tau0 = max(s.sum(), 4 * s.max())
        best = min(page["noise_constant"](x * tau0, s) for x in np.geomspace(0.3, 10, 500))
        assert page["noise_constant"](tau0, s) <= 2.6 * best


def test_the_spectral_start_has_the_largest_own_logit_and_its_negative_the_smallest():
    task = pc.gaussian_task(1, [1.0, 0.6, 0.2], p=4, kappa=7, seed=3)
    A, B = pc.spectral_init(task.Sigma, task.M)
    U, Z = pc.whiten(A, B, task.Sigma)
    top = torch.trace(Z)
    assert torch.isclose(top, torch.tensor([1.0, 0.6, 0.2], dtype=top.dtype).sqrt().sum())
    rng = np.random.default_rng(0)
    for _ in range(200):
        turn = torch.tensor(np.linalg.qr(rng.normal(size=(3, 3)))[0])
        assert -top <= torch.trace(Z @ turn) <= top
        moved = pc.unwhiten(U @ turn, Z @ turn, task.Sigma)
        assert pc.manifold_distance(*moved, task.Sigma, task.M) < 1e-7


@pytest.mark.parametrize("n, d", [(60, 6), (200, 12)])
def test_few_tokens_have_another_largest_logit(n, d):
    """The share of the copy solution, by simulation, against its bound."""
    X = torch.tensor(np.random.default_rng(n).normal(size=(200, n, d)))
    other = ((X @ X.mT).argmax(-1) != torch.arange(n)).double().mean()
    assert 0 < other <= (n - 1) * 2 ** (-d / 2 - 1)


def test_without_its_own_token_copying_has_no_advantage():
    """The solution of the exercise: own logit at minus infinity, loss near the fresh error plus the floor."""
    task = pc.gaussian_task(500, np.linspace(1, 0.3, 32), noise=0.1, seed=0)
    found = pc.estimate(task.X, task.Y)
    A, B = pc.copy_solution(found.Sigma, found.M, 1.0)
    logits = (task.X @ B @ task.X.mT).fill_diagonal_(-torch.inf)
    alone = ((torch.softmax(logits, -1) @ task.X @ A.mT - task.Y) ** 2).sum(-1).mean() / 2
    assert alone > 20 * pc.empirical_loss(A, B, task.X, task.Y)
    queries = torch.tensor(np.random.default_rng(1).normal(size=(2000, 32))) @ torch.linalg.cholesky(task.Sigma).mT
    miss = pc.attention_output(A, B, queries, task.X) - queries @ task.M.mT
    fresh = (miss ** 2).sum(-1).mean() / 2
    assert abs(alone / (fresh + 32 * 0.1**2 / 2) - 1) < 0.15
