"""Every random problem, degenerate or not, is solved with a certificate or proved infeasible."""

import numpy as np
import pytest
from svm_problems import KINDS, problem, rows, separable

from attncore.svm import InfeasibleError, Status, attention_svm


@pytest.mark.parametrize("kind", KINDS)
def test_solved_with_a_certificate_or_proved_infeasible(kind):
    for seed in range(30):
        X, z, selected = problem(kind, seed)
        A = rows(X, z, selected)
        feasible = separable(X, z, selected)
        try:
            solution = attention_svm(X, z, selected)
        except InfeasibleError as error:
            assert not feasible, (kind, seed)
            weights = error.certificate.numpy()
            other = np.arange(X.shape[1]) != selected[:, None]
            assert (weights >= 0).all() and (weights[~other] == 0).all() and weights.sum() == pytest.approx(1)
            scale = np.linalg.norm(X, axis=-1).max() * np.linalg.norm(z, axis=-1).max()
            assert np.linalg.norm(weights[other] @ A) <= 1e-9 * scale, (kind, seed)
            continue
        assert feasible, (kind, seed)
        assert solution.status == Status.OPTIMAL, (kind, seed, float(solution.gap))
        W, dual = solution.W.numpy().ravel(), solution.dual.numpy()
        size = np.linalg.norm(W)
        assert (A @ W).min() >= 1 - 1e-6, (kind, seed)
        other = np.arange(X.shape[1]) != selected[:, None]
        assert (dual >= 0).all() and (dual[~other] == 0).all()
        assert np.linalg.norm(dual[other] @ A - W) <= 1e-8 * size, (kind, seed)
        assert dual.sum() == pytest.approx(size**2, rel=1e-8), (kind, seed)


def test_token_count_one_and_single_sequence():
    alone = attention_svm(np.ones((2, 1, 3)), np.ones((2, 3)), [0, 0])
    assert alone.value == 0 and alone.margin == np.inf and alone.status == Status.OPTIMAL
    assert (alone.W == 0).all() and alone.dual.shape == (2, 1) and int(alone.rank) == 0
    assert attention_svm([[[1.0], [0.5]]], [[2.0]], [0]).value == pytest.approx(1.0)


@pytest.mark.parametrize("factor", [1e-120, 1e-9, 1e9, 1e120])
def test_huge_and_tiny_data(factor):
    X, z, selected = problem("plain", 3)
    plain, scaled = attention_svm(X, z, selected), attention_svm(X * factor, z, selected)
    assert scaled.status == Status.OPTIMAL
    np.testing.assert_allclose(scaled.W.numpy() * factor, plain.W.numpy(), rtol=1e-9, atol=1e-12)


def test_nearly_infeasible_data_are_solved_not_refused():
    """The selected token sits 1e-7 outside the hull: the value is 1e7, and still certified."""
    X = [[[1e-7, 0.0], [0.0, 1.0], [0.0, -1.0]]]
    solution = attention_svm(X, [[1.0, 0.0]], [0])
    assert solution.status == Status.OPTIMAL and float(solution.value) == pytest.approx(1e7)


@pytest.mark.parametrize("slope", [1e-1, 1e-2, 1e-3, 1e-5])
def test_nearly_opposite_differences_are_solved_without_overflow(slope):
    # The rows (1, e) and (-1, 2e): the screening step is far too long here, and its guess runs off to infinity.
    X = np.array([[[0.0, 0.0], [-1.0, -slope], [1.0, -2 * slope]]])
    found = attention_svm(X, np.array([[1.0, 0.0]]), [0])
    np.testing.assert_allclose(found.W[:, 0], [1 / 3, 2 / (3 * slope)], rtol=1e-9)
    assert found.status == Status.OPTIMAL
