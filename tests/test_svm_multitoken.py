"""Attention SVMs with several tokens: against cvxpy, their own certificate, and the single-token solver."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attncore.geometry import correlation
from attncore.svm import InfeasibleError, Status, attention_svm, attention_svm_multi, best_combination, finite_part

NORMS = ("fro", "nuc")


def problem(seed):
    rng = np.random.default_rng(seed)
    n, T, d = int(rng.integers(1, 5)), int(rng.integers(2, 6)), int(rng.integers(2, 8))
    X, z, mask = rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), rng.random((n, T)) < 0.4
    mask[np.arange(n), rng.integers(0, T, n)] = True
    return X, z, mask


def matrices(X, z, mask):
    """Constraint matrices, flattened, and which are equations, written out one by one."""
    A, equal = [], []
    for i in range(len(z)):
        first = int(mask[i].argmax())
        for t in range(X.shape[1]):
            if t != first:
                A.append(np.outer(X[i, first] - X[i, t], z[i]).ravel())
                equal.append(mask[i, t])
    return np.array(A), np.array(equal)


def by_cvxpy(X, z, mask, norm):
    A, equal = matrices(X, z, mask)
    W = cp.Variable((X.shape[2],) * 2)
    w = cp.vec(W, order="C")
    constraints = [A[k] @ w == 0 if equal[k] else A[k] @ w >= 1 for k in range(len(A))]
    return cp.Problem(cp.Minimize(cp.norm(W, norm)), constraints).solve(solver=cp.CLARABEL)


def duals(dual, mask):
    return np.concatenate([np.delete(dual[i], mask[i].argmax()) for i in range(len(dual))])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(25))
def test_value_certificate_and_infeasibility(seed, norm):
    X, z, mask = problem(seed)
    A, equal = matrices(X, z, mask)
    expected = by_cvxpy(X, z, mask, norm)
    try:
        solution = attention_svm_multi(X, z, mask, norm)
    except InfeasibleError as error:
        assert expected == np.inf
        weights = duals(error.certificate.numpy(), mask)
        assert (weights[~equal] >= 0).all() and weights[~equal].sum() == pytest.approx(1)
        scale = np.abs(weights) @ np.linalg.norm(A, axis=1)
        assert np.linalg.norm(weights @ A) <= 1e-9 * scale
        return
    W, value, d = solution.W.numpy().ravel(), float(solution.value), X.shape[2]
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert solution.status == Status.OPTIMAL and solution.gap <= 1e-12 and solution.kkt_residual <= 1e-11
    if equal.all():
        assert value == 0 and (W == 0).all() and solution.margin == np.inf
        return
    assert (A[~equal] @ W).min() >= 1 - 1e-12
    assert np.abs(A[equal] @ W).max(initial=0) <= 1e-11 * value
    lam = duals(solution.dual.numpy(), mask)
    assert (lam[~equal] >= 0).all() and (solution.dual.numpy()[np.arange(len(z)), mask.argmax(1)] == 0).all()
    combined = (lam @ A).reshape(d, d)
    if norm == "fro":
        np.testing.assert_allclose(combined.ravel(), W, atol=1e-9 * value)
        assert lam[~equal].sum() == pytest.approx(value**2)
    else:
        assert np.linalg.norm(combined, 2) <= 1 + 1e-10 and lam[~equal].sum() == pytest.approx(value)


@pytest.mark.parametrize("norm", NORMS)
def test_one_token_each_is_the_single_token_problem(norm):
    rng = np.random.default_rng(0)
    X, z, selected = rng.normal(size=(3, 4, 5, 6)), rng.normal(size=(3, 4, 6)), rng.integers(0, 5, (3, 4))
    mask = np.arange(5) == selected[..., None]
    single, multi = attention_svm(X, z, selected, norm), attention_svm_multi(X, z, mask, norm)
    torch.testing.assert_close(single.value, multi.value, rtol=1e-11, atol=0)
    torch.testing.assert_close(single.W, multi.W, rtol=0, atol=1e-7)


@pytest.mark.parametrize("norm", NORMS)
def test_batches_broadcast_and_say_what_is_infeasible(norm):
    X = np.array([[[1.0, 0.0], [0.0, 1.0], [0.4, 0.4]], [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]])[:, None]
    solution = attention_svm_multi(X, [[1.0, 0.0]], [[True, True, False]], norm)
    assert solution.status.tolist() == [Status.OPTIMAL, Status.INFEASIBLE]
    assert solution.W[0, :, 0].numpy() == pytest.approx([5.0, 5.0]) and solution.W[1].isnan().all()
    assert solution.certificate[1, 0].tolist() == pytest.approx([0, -0.5, 1])


@pytest.mark.parametrize("norm", NORMS)
def test_implied_equations_and_repeated_tokens(norm):
    """A selected token given twice, and one halfway between two others, change nothing."""
    X, z, mask = problem(4)
    mask[0, :2], mask[0, 2:] = True, False
    longer = np.concatenate([X, X[:, :1], X[:, :1]], axis=1)
    longer[0, -1] = (X[0, 0] + X[0, 1]) / 2
    more = np.concatenate([mask, mask[:, :1], mask[:, :1]], axis=1)
    plain, repeated = attention_svm_multi(X, z, mask, norm), attention_svm_multi(longer, z, more, norm)
    assert repeated.status == Status.OPTIMAL
    torch.testing.assert_close(repeated.value, plain.value, rtol=1e-9, atol=0)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_finite_part_reproduces_ratios_and_is_orthogonal_to_the_direction(seed):
    X, z, mask = problem(seed)
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 1, mask.shape)
    part = finite_part(X, z, mask, weights)
    W = part.W.numpy()
    A, equal = matrices(X, z, mask)
    logits = np.einsum("ntd,de,ne->nt", X, W, z)
    for i in range(len(z)):
        wanted, found = np.log(weights[i][mask[i]]), logits[i][mask[i]]
        assert np.abs((found - found[0]) - (wanted - wanted[0])).max() <= float(part.residual) + 1e-9
    if equal.any() and np.linalg.matrix_rank(A[equal], tol=1e-6) == equal.sum():
        assert part.residual <= 1e-8
        basis = np.linalg.qr(A[equal].T)[0]
        assert np.linalg.norm(W.ravel() - basis @ (basis.T @ W.ravel())) <= 1e-7 * max(1, np.linalg.norm(W))
    try:
        direction = attention_svm_multi(X, z, mask)
    except InfeasibleError:
        return
    inner = float((part.W * direction.W).sum())
    assert abs(inner) <= 1e-8 * float(part.W.norm() * direction.W.norm()) + 1e-12


def test_contradictory_ratios_are_reported():
    """The same sequence twice with different weights: only a compromise exists."""
    X = [[[1.0, 0.0], [0.0, 1.0]]] * 2
    part = finite_part(X, [[1.0, 0.0]] * 2, [[True, True]] * 2, [[0.5, 0.5], [0.8, 0.2]])
    assert float(part.residual) == pytest.approx(np.log(4) / 2)


def test_best_combination_is_the_least_squares_fit():
    rng = np.random.default_rng(0)
    finite, direction = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    exact = best_combination(finite + 7 * direction, finite, direction)
    assert float(exact.C) == pytest.approx(7) and float(exact.correlation) == pytest.approx(1)
    assert exact.distance <= 1e-12
    W = rng.normal(size=(4, 3, 3))
    fit = best_combination(W, finite, direction)
    assert fit.C.shape == (4,) and torch.allclose(fit.correlation_direction, correlation(W, direction))
    for C in (0.9, 1.1):
        moved = torch.from_numpy(finite) + (C * fit.C)[:, None, None] * torch.from_numpy(direction)
        assert ((fit.W - torch.from_numpy(W)).norm(dim=(1, 2)) < (moved - torch.from_numpy(W)).norm(dim=(1, 2))).all()


@pytest.mark.parametrize(
    ("mask", "error", "says"),
    [
        ([[1, 0, 0]], TypeError, "mask must be boolean"),
        ([[False, False, False]], ValueError, "mask must select a token in every sequence"),
        ([[True, False]], ValueError, r"mask must have shape \(\.\.\., n, T\)"),
    ],
)
def test_bad_masks_are_named(mask, error, says):
    with pytest.raises(error, match=says):
        attention_svm_multi(np.eye(3)[None], [[1.0, 0.0, 0.0]], mask)


def test_bad_weights_and_directions_are_named():
    X, z, mask = np.eye(2)[None], [[1.0, 0.0]], [[True, True]]
    with pytest.raises(ValueError, match="attention must be positive on the mask, got 0"):
        finite_part(X, z, mask, [[1.0, 0.0]])
    with pytest.raises(ValueError, match="attention must have shape"):
        finite_part(X, z, mask, [[1.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match="direction must not be zero"):
        best_combination(np.eye(2), np.eye(2), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="must broadcast"):
        best_combination(np.eye(2), np.eye(3), np.eye(2))
