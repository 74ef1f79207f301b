"""What the page `book/svm/beyond-linear-heads` promises and its build cannot show.

The property check of the exercise meets wrong answers; solutions by hand meet the solvers; the sharpness, the
thresholds and the two examples of a remainder meet problems other than the page's own.
"""

import math

import numpy as np
import pages
import pytest
import torch
from scipy.optimize import linprog

from attncore.course.check import NotDone, PropertyViolated
from attncore.course.data_files import load
from attncore.data import TokenSelection
from attncore.paths import regularization_path
from attncore.svm import Status, attention_svm, attention_svm_multi, finite_part

PAGE = "svm/beyond-linear-heads"


@pytest.fixture(scope="module")
def page():
    return pages.names(PAGE, ["import ", "LAM = ", "cases = ", "def by_bisection"])


def answer(page, function):
    return [function(*case) for case in page["cases"]]


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        answer(page, page["best_attention"])


@pytest.mark.parametrize("wrong", [
    lambda gamma, lam: np.exp(np.array(gamma) / (2 * lam)) / np.exp(np.array(gamma) / (2 * lam)).sum(),
    lambda gamma, lam: np.eye(len(gamma))[np.argmax(gamma)],
    lambda gamma, lam: np.full(len(gamma), 1 / len(gamma)),
    lambda gamma, lam: np.array(gamma) / (2 * lam) + (1 - sum(gamma) / (2 * lam)) / len(gamma),
    lambda gamma, lam: np.full(len(gamma), np.nan),
    lambda gamma, lam: np.maximum(0, np.array(gamma)) / sum(g for g in gamma if g > 0),
    lambda gamma, lam: [1.0],
])
def test_wrong_weights_violate_the_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["no_move_helps"](answer(page, wrong))


def test_a_missing_case_violates_the_property(page):
    with pytest.raises(PropertyViolated):
        page["no_move_helps"](answer(page, page["by_bisection"])[:-1])


def test_right_weights_pass_however_they_are_found(page, capsys):
    page["no_move_helps"](answer(page, page["by_bisection"]))
    page["no_move_helps"](answer(page, lambda gamma, lam: page["sparsemax"](torch.tensor(gamma), lam)))

    def by_descent(gamma, lam):
        s, gamma = np.full(len(gamma), 1 / len(gamma)), np.array(gamma)
        for _ in range(400):
            s = page["by_bisection"](s + 0.2 * (gamma - 2 * lam * s), 0.5)  # project a gradient step
        return s

    page["no_move_helps"](answer(page, by_descent))
    assert capsys.readouterr().out.count("Holds") == 3


@pytest.mark.parametrize("seed", range(20))
def test_the_thresholds_count_the_tokens_also_at_equality(page, seed):
    rng = np.random.default_rng(seed)
    gamma = torch.tensor(np.round(rng.normal(size=6), 1))  # ties occur
    for tau, theta in enumerate(page["thresholds"](gamma).tolist(), 1):
        if theta > 0:
            assert int((page["sparsemax"](gamma, theta / 2) > 1e-12).sum()) <= tau
            assert int((page["sparsemax"](gamma, theta / 2 * (1 + 1e-6)) > 0).sum()) > tau


def test_the_exercise_by_hand():
    X, z, mask = np.eye(3)[None], [[1, 0, 0]], [[True, True, False]]
    fin = finite_part(X, z, mask, [[0.625, 0.375, 0.0]]).W
    assert fin[:, 0].numpy() == pytest.approx(np.array([1, -1, 0]) * math.log(5 / 3) / 2)
    assert attention_svm_multi(X, z, mask).W[:, 0].numpy() == pytest.approx(np.array([1, 1, -2]) / 3)


@pytest.mark.parametrize(("weights", "lengths"), [((5, 1), (1, 1)), ((1, 3), (1, 2)), ((2, 1), (0.5, 1))])
def test_the_offset_of_two_orthogonal_sequences(weights, lengths):
    """m_1 - m_2 tends to log(w_1 rho_1^2 / (w_2 rho_2^2)): at two radii, so that the correction can be seen to fall."""
    X = [[[lengths[0], 0], [0, 0]], [[0, lengths[1]], [0, 0]]]
    prob = TokenSelection(X, np.eye(2), [1, 1], [weights[0] / lengths[0], weights[1] / lengths[1]])
    svm = attention_svm(prob.X, prob.z, [0, 0])
    radii = [8 * float(svm.value), 16 * float(svm.value)]
    path = regularization_path(prob, radii, loss="correlation", directions=[svm.W])
    assert bool(path.converged.all())
    m = torch.stack([lengths[0] * path.W[:, 0, 0], lengths[1] * path.W[:, 1, 1]])
    limit = math.log(weights[0] * lengths[0] ** 2 / (weights[1] * lengths[1] ** 2))
    error = (m[0] - m[1] - limit).abs()
    assert error[1] < 0.6 * error[0] and error[1] < 0.2
    exact = m[0] - m[1] + (m[0] / m[1]).log()
    assert (exact - limit).abs().max() < 1e-2  # what is left is of size exp(-m)


def test_the_second_support_token_has_multiplier_zero():
    svm = attention_svm([[[0.0, 0.0], [0.0, -1.0], [-1.0, -1.0]]], [[1.0, 0.0]], [0])
    assert svm.W[:, 0].numpy() == pytest.approx([0, 1])
    assert svm.dual[0].numpy() == pytest.approx([0, 1, 0], abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_feasibility_by_hulls(seed):
    """One sequence: feasible if and only if no affine combination of the kept is a convex one of the others."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(5, 2)) if seed % 2 else rng.normal(size=(5, 3))
    mask = np.arange(5) < 2
    kept, rest = X[mask], X[~mask]
    A = np.block([[kept.T, -rest.T], [np.ones((1, 2)), np.zeros((1, 3))], [np.zeros((1, 2)), np.ones((1, 3))]])
    meet = linprog(np.zeros(5), A_eq=A, b_eq=np.append(np.zeros(X.shape[1]), [1, 1]),
                   bounds=[(None, None)] * 2 + [(0, None)] * 3).status == 0
    solved = attention_svm_multi(X[None, None], np.ones((1, 1, X.shape[1])), mask[None, None])
    assert (int(solved.status[0]) == Status.INFEASIBLE) == meet


def test_the_stored_sweep_counts_every_draw_once():
    for row in load("relu-heads.json")["published"]:
        assert sum(row["outcomes"].values()) == row["draws"]
        assert len(row["corr"]) == len(set(row["draw"])) == row["outcomes"]["ACCEPTED"]
        assert max(row["gamma"]) <= 1e-6
