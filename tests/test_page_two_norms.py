"""What the page `book/svm/two-norms` promises and its build cannot show.

The check of the exercise meets wrong answers, what was solved by hand meets the solver, and the inequalities and
invariants of the propositions meet other matrices than those of the page.
"""

import math

import numpy as np
import pages
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attncore.course import data_files
from attncore.course.check import NotDone, PropertyViolated
from attncore.data import token_selection
from attncore.geometry import correlation
from attncore.svm import attention_svm, smallest_margin
from attncore.training import train
from attncore.weights import gaussian_start

NEEDED = ("import ", "def two_queries", "def nuclear", "def multipliers", "def by_gradient")


@pytest.fixture(scope="module")
def page():
    """The names that the page defines in the cells this file is about."""
    return pages.names("svm/two-norms", NEEDED)


def nuclear(W):
    return torch.linalg.matrix_norm(W, "nuc")


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["certify_the_run"](page["multipliers"](page["quiet"], page["W_rest"], page["RIDGE"]))


@pytest.mark.parametrize("wrong, says", [
    (lambda lam: -lam, "no weight is negative"),
    (lambda lam: 2 * lam, "the operator norm of S is 1"),
    (lambda lam: lam + 0.3 * (lam == 0), "weights are zero at the selected tokens"),
    (lambda lam: lam[:, 1:], "lam has shape"),
    (lambda lam: torch.nan * lam, "weights are finite"),
    (lambda lam: (lam > 1e-6 * lam.max()) / 3.0, "operator norm|closed to ten per cent"),
])
def test_wrong_multipliers_violate_a_property(page, wrong, says):
    lam = page["by_gradient"](page["quiet"], page["W_rest"], page["RIDGE"])
    with pytest.raises(PropertyViolated, match=says):
        page["certify_the_run"](wrong(lam))


def test_feasible_but_loose_multipliers_do_not_close_the_bracket(page):
    """Equal weights, scaled to operator norm one, pass every other property."""
    quiet, W = page["quiet"], page["W_rest"]
    best = torch.einsum("itd,de,ie->it", quiet.X, W, quiet.z).argmax(-1)
    lam = torch.ones_like(quiet.scores).scatter(-1, best[:, None], 0)
    D = quiet.X[torch.arange(6), best][:, None] - quiet.X
    lam /= torch.linalg.matrix_norm(torch.einsum("it,itd,ie->de", lam, D, quiet.z), 2)
    with pytest.raises(PropertyViolated, match="closed to ten per cent"):
        page["certify_the_run"](lam)


def test_the_solution_passes_and_so_do_the_solvers_multipliers(page, capsys):
    quiet, W = page["quiet"], page["W_rest"]
    page["certify_the_run"](page["by_gradient"](quiet, W, page["RIDGE"]))
    best = torch.einsum("itd,de,ie->it", quiet.X, W, quiet.z).argmax(-1)
    page["certify_the_run"](attention_svm(quiet.X, quiet.z, best, norm="nuc").dual)
    assert capsys.readouterr().out.count("Holds") == 2


@pytest.mark.parametrize("m", [3, 4, 7])
def test_balanced_is_enough(m):
    """The equality case of the variational form: any balanced pair costs the nuclear norm of its product."""
    rng = np.random.default_rng(m)
    frames = (torch.linalg.qr(torch.tensor(rng.normal(size=(7, m))))[0] for _ in range(2))
    C = torch.tensor(rng.normal(size=(2, m)))          # of rank two, so that both factors are deficient
    root = torch.linalg.svd(C)
    C = (root.Vh[:2].T * root.S) @ root.Vh[:2]
    K, Q = (frame @ C for frame in frames)
    assert torch.allclose(K.T @ K, Q.T @ Q)
    assert float(nuclear(K @ Q.T)) == pytest.approx(float(K.square().sum()))


@pytest.mark.parametrize("angle", [100, 135, 170])
def test_obtuse_queries(page, angle):
    """The solution of the exercise: opposite columns."""
    prob, half = page["two_queries"](angle), math.radians(angle) / 2
    w = prob.X[:, 0]
    b = (w[0] - w[1]) / (w[0] - w[1]).norm()
    nuc = attention_svm(prob.X, prob.z, [0, 0], norm="nuc")
    assert torch.allclose(nuc.W, torch.stack([b, -b], 1) / math.sin(half))
    assert float(nuc.value) == pytest.approx(2**0.5 / math.sin(half))
    fro = attention_svm(prob.X, prob.z, [0, 0])
    assert float(correlation(fro.W, nuc.W)) == pytest.approx(math.sin(half))
    assert nuc.unique and int(nuc.rank) == 1


@pytest.mark.parametrize("alpha", [-1.0, -0.3, 0.0, 0.8, 1.0, 1.2])
def test_the_family_at_a_right_angle_is_all_of_it(page, alpha):
    prob = page["two_queries"](90)
    w = prob.X[:, 0].T
    W = w + alpha * w.flip(1)
    assert float(smallest_margin(W, prob.X, prob.z, prob.optimal)) == pytest.approx(1)
    assert (float(nuclear(W)) < 2 + 1e-12) == (abs(alpha) <= 1)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(-3, 3))
def test_squared_length_nuclear_norm_and_imbalance(seed, m, power):
    """Part 3 of the invariants, and the price of unequal weights, on random factors of any scale."""
    rng = np.random.default_rng(seed)
    K, Q = (torch.tensor(rng.normal(size=(4, m)) * 10.0 ** (power * sign)) for sign in (1, -1))
    half, product = (K.square().sum() + Q.square().sum()) / 2, nuclear(K @ Q.T)
    slack = 1e-9 * half
    assert -slack <= half - product <= nuclear(K.T @ K - Q.T @ Q) / 2 + slack
    a, b = rng.uniform(0.1, 3, 2)
    assert a * K.square().sum() + b * Q.square().sum() >= 2 * math.sqrt(a * b) * product - slack * max(a, b)


@pytest.mark.parametrize("ridge", [0.0, 2.2e-16, 1e-3])
def test_descent_stays_in_the_row_space_of_its_start(ridge):
    prob = token_selection(4, 5, 6, seed=3, batch=(5,))
    rows = torch.tensor(np.random.default_rng(1).normal(size=(2, 6)))
    K, Q = (M[..., :2] @ rows for M in gaussian_start((5,), 6, 6, seed=2))
    run = train(prob, "KQ", steps=300, init=(K, Q), ridge=ridge, normalization="each")
    values = torch.linalg.svdvals(run.W[-1])
    assert float((values[:, 2] / values[:, 0]).max()) < 1e-10 < 1e-6 < float((values[:, 1] / values[:, 0]).max())


def test_a_ridge_makes_imbalance_decay_and_none_keeps_it():
    """Part 2, with plain short steps, which follow the flow."""
    prob = token_selection(3, 4, 5, seed=0)
    K, Q = gaussian_start((), 5, 5, seed=1)
    for ridge in (0.0, 0.05):
        run = train(prob, "KQ", steps=4000, lr=1e-3, normalized=False, init=(K, Q), ridge=ridge, record=4000)
        B = run.K.mT @ run.K - run.Q.mT @ run.Q
        assert torch.allclose(B[1], math.exp(-4 * ridge * 4.0) * B[0], rtol=0, atol=2e-3 * float(B[0].abs().max()))


def test_stored_runs_are_whole():
    data = data_files.load("two_norms.json")
    assert len(data["table"]) == 16
    assert all(len(row["corr"]) == data["settings"]["seeds"] for row in data["table"])
    assert all(len(run["mean"]) == len(data["steps"]) for run in data["long"].values())
    for run in data["long"].values():
        assert (np.array(run["low"]) <= run["high"]).all()
