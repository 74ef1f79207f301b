"""Attention SVMs with kept sequences: against cvxpy, a case solved by hand, and the ordinary SVM."""

import cvxpy as cp
import numpy as np
import pytest
import torch

from attncore.svm import attention_svm, attention_svm_kept


def problem(seed, n=4, T=4, d=2):
    rng = np.random.default_rng(seed)
    kept = rng.random(n) < 0.5
    kept[rng.integers(n)] = False
    return rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), rng.integers(0, T, n), kept


def by_cvxpy(X, z, selected, kept):
    W = cp.Variable((X.shape[2],) * 2)
    rows = [(X[i, selected[i]] - X[i, t]) @ W @ z[i] >= (0 if kept[i] else 1)
            for i in range(len(z)) for t in range(X.shape[1]) if t != selected[i]]
    return cp.Problem(cp.Minimize(cp.norm(W, "fro")), rows).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("seed", range(25))
def test_value_and_feasibility(seed):
    X, z, selected, kept = problem(seed)
    solution, expected = attention_svm_kept(X, z, selected, kept), by_cvxpy(X, z, selected, kept)
    if not np.isfinite(expected):
        assert solution.W.isnan().all() and solution.value == np.inf and solution.gap == 1
        return
    assert float(solution.value) == pytest.approx(expected, rel=1e-6)
    assert solution.gap < 1e-9
    gaps = np.einsum("itd,de,ie->it", X[np.arange(len(z)), selected][:, None] - X, solution.W.numpy(), z)
    gaps[np.arange(len(z)), selected] = np.inf
    assert gaps[~kept].min() == pytest.approx(1) and gaps[kept].min(initial=0) > -1e-9


def test_both_outcomes_occur():
    values = [float(attention_svm_kept(*problem(seed)).value) for seed in range(25)]
    assert 2 < np.isfinite(values).sum() < 25


def test_a_kept_query_turns_the_direction_by_hand():
    """Margin 1 at the query (1, 0), and the query x_2 must keep itself: q is orthogonal to x_2."""
    x = np.array([[1.0, 0.0], [5 / 13, 12 / 13]])
    solution = attention_svm_kept([x, x], x, [0, 1], [False, True])
    q = np.array([1.0, -5 / 12])
    gap = x[0] - x[1]
    np.testing.assert_allclose(solution.W, np.outer(gap, q) / (gap @ gap), atol=1e-12)


def test_nothing_kept_is_the_ordinary_svm_and_batches_and_units_do_not_matter():
    X, z, selected, _ = problem(3, d=6)
    plain = attention_svm(X, z, selected)
    both = attention_svm_kept(np.stack([X, 1e3 * X]), np.stack([z, 1e-5 * z]), selected, np.zeros(4, bool))
    torch.testing.assert_close(both.W[0], plain.W)
    torch.testing.assert_close(both.W[1], plain.W * 1e2)
    torch.testing.assert_close(both.value, torch.stack([plain.value, 1e2 * plain.value]))


@pytest.mark.parametrize(("error", "words", "change"), [
    (TypeError, "kept must be boolean", {"kept": [0, 1, 0, 0]}),
    (ValueError, "kept must have shape", {"kept": [True, False]}),
    (ValueError, "kept must leave out", {"kept": [True] * 4}),
    (ValueError, "X must have at least 2 tokens", {"X": np.ones((4, 1, 2)), "selected": [0] * 4}),
])
def test_bad_input(error, words, change):
    arguments = dict(zip(("X", "z", "selected", "kept"), problem(0), strict=True))
    with pytest.raises(error, match=words):
        attention_svm_kept(**{**arguments, **change})
