"""Large problems: the matrix-free active set method, and what takes over where it does not settle."""

import numpy as np
import pytest
from svm_problems import rows

from attncore.svm import InfeasibleError, Status, attention_svm, frobenius, newton
from attncore.svm.bounds import measure
from attncore.svm.constraints import assemble, check
from attncore.svm.matrix_free import Operator, matrix_free
from attncore.svm.newton import gap, multipliers

N, T, D = 40, 12, 40


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def large(kind):
    """Tokens, queries and selected tokens of a problem that counts as large."""
    rng = np.random.default_rng(5)
    X, z, selected = unit(rng.normal(size=(N, T, D))), unit(rng.normal(size=(N, D))), rng.integers(0, T, N)
    if kind == "low rank":
        X, z = unit(X[..., :9] @ rng.normal(size=(9, D))), unit(z[:, :7] @ rng.normal(size=(7, D)))
        selected = np.einsum("ntd,de,ne->nt", X, rng.normal(size=(D, D)), z).argmax(1)
    elif kind == "repeated queries":
        z = np.repeat(z[:8], 5, axis=0)
    elif kind == "twin tokens":
        X[:, 1], X[:, 2] = X[:, 0], X[:, 3]
        selected[selected < 4] = 5
    elif kind == "scales":
        X = X * 10.0 ** rng.uniform(-2, 2, (N, 1, 1))
    elif kind == "hull":
        X[3, selected[3]] = np.delete(X[3], selected[3], 0).mean(0)
    return X, z, selected


@pytest.mark.parametrize("kind", ["plain", "low rank", "repeated queries", "twin tokens", "scales"])
def test_large_problems_satisfy_the_optimality_conditions(kind):
    X, z, selected = large(kind)
    assert N * (T - 1) * D * D * N * (T - 1) > frobenius.LARGE
    solution = attention_svm(X, z, selected)
    assert solution.status == Status.OPTIMAL
    A, W = rows(X, z, selected), solution.W.numpy().ravel()
    dual = solution.dual.numpy()[np.arange(T) != selected[:, None]]
    assert (A @ W).min() >= 1 - 1e-8 and (dual >= 0).all()
    assert np.linalg.norm(dual @ A - W) <= 1e-7 * np.linalg.norm(W)
    assert dual @ (A @ W - 1) <= 1e-8 * dual.sum()


def test_an_infeasible_large_problem_is_proved_infeasible():
    X, z, selected = large("hull")
    with pytest.raises(InfeasibleError) as caught:
        attention_svm(X, z, selected)
    weights = caught.value.certificate.numpy()[np.arange(T) != selected[:, None]]
    assert (weights >= 0).all() and weights.sum() == pytest.approx(1)
    assert np.linalg.norm(weights @ rows(X, z, selected)) <= 1e-9


def test_every_method_finds_the_same_solution(monkeypatch):
    X, z, selected = large("plain")
    matrix_free_answer = attention_svm(X, z, selected)
    monkeypatch.setattr(frobenius, "LARGE", np.inf)
    small_answer = attention_svm(X, z, selected)
    np.testing.assert_allclose(matrix_free_answer.W, small_answer.W, atol=1e-10)
    differences, queries, b, _ = (a[0] for a in frobenius._unit(assembled(X, z, selected)))
    lam, infeasible = multipliers(differences, queries, b, 1e-12)
    operator = Operator.of(differences, queries)
    assert not infeasible and gap(operator, b, lam) <= 1e-12
    np.testing.assert_allclose(lam, matrix_free(operator, b), atol=1e-7)


def assembled(X, z, selected):
    return assemble(*check(X[None], z[None], selected[None]))


def certified_gap(problem_rows, weights, W=None):
    W = problem_rows.combine(weights) if W is None else W
    return float(measure(problem_rows, W, weights, "fro").gap.max())


@pytest.mark.parametrize("method", ["_screened", "_dual", "_primal"])
def test_each_small_method_is_accurate_by_itself(method):
    """The next method would mend a broken one, so each is tried alone."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, z = unit(rng.normal(size=(4, 5, 6))), unit(rng.normal(size=(4, 6)))
        part = assembled(X, z, np.zeros(4, int))
        # Screening is allowed to miss a row now and then; these seeds are ones where it does not.
        assert certified_gap(part, *getattr(frobenius, method)(part)) <= 1e-11


@pytest.mark.parametrize("kind", ["plain", "twin tokens"])
def test_the_matrix_free_method_is_accurate_by_itself(kind):
    differences, queries, b, factor = frobenius._unit(assembled(*large(kind)))
    lam = matrix_free(Operator.of(differences[0], queries[0]), b[0])
    assert certified_gap(assembled(*large(kind)), lam[None] * factor) <= 1e-12


@pytest.mark.parametrize("kind", ["plain", "low rank", "repeated queries"])
def test_the_multipliers_converge_without_the_active_set_polish(kind, monkeypatch):
    monkeypatch.setattr(newton, "active_set", lambda full, half, b, lam, **_: lam)
    differences, queries, b, factor = frobenius._unit(assembled(*large(kind)))
    lam, infeasible = multipliers(differences[0], queries[0], b[0], 1e-6)
    assert not infeasible and certified_gap(assembled(*large(kind)), lam[None] * factor) <= 1e-6


@pytest.mark.parametrize("n", [3, 30])
def test_the_operator_is_the_gram_matrix(n):
    """Both routes: through Z Z^T (n <= 2 d) and through W (n > 2 d)."""
    rng = np.random.default_rng(n)
    u, z, lam = rng.normal(size=(n, 4, 6)), rng.normal(size=(n, 6)), rng.normal(size=(n, 4))
    A = (u[..., :, None] * z[:, None, None, :]).reshape(n * 4, -1)
    operator = Operator.of(u, z)
    np.testing.assert_allclose(operator(lam).ravel(), A @ A.T @ lam.ravel(), rtol=1e-10)
    np.testing.assert_allclose(operator.margins(operator.combine(lam)), operator(lam), rtol=1e-9)


def test_a_breakdown_of_the_fast_method_is_caught(monkeypatch):
    from attncore.svm import large as large_module

    X, z, selected = large("plain")
    expected = attention_svm(X, z, selected)
    monkeypatch.setattr(large_module, "matrix_free", lambda operator, b: np.full_like(b, np.nan))
    assert attention_svm(X, z, selected).status == Status.OPTIMAL
    np.testing.assert_allclose(attention_svm(X, z, selected).W, expected.W, atol=1e-7)
