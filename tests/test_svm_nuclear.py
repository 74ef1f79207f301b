"""The nuclear attention SVM: certified everywhere, its parts each on their own, uniqueness proved or left open."""

import itertools
import sys
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from svm_problems import KINDS, problem, rows, separable

from attncore.data import token_selection
from attncore.svm import InfeasibleError, Status, attention_svm, nuclear
from attncore.svm.constraints import assemble, check
from attncore.svm.frobenius import Best
from attncore.svm.frobenius import solve as solve_frobenius
from attncore.svm.nuclear_interior import Interior, Program
from attncore.svm.nuclear_polish import _hessian, polish
from attncore.svm.nuclear_unique import NOT_UNIQUE, OPEN, UNIQUE, uniqueness


def assert_certified(X, z, selected, solution, tol=1e-9):
    """The certificate, recomputed from the definition with nothing of the package."""
    A, other = rows(X, z, selected), np.arange(X.shape[1]) != np.asarray(selected)[:, None]
    W, dual = solution.W.numpy(), solution.dual.numpy()
    d = W.shape[0]
    assert (dual >= 0).all() and (dual[~other] == 0).all()
    pulled = (dual[other] @ A).reshape(d, d)
    upper = np.linalg.norm(W, "nuc") / (A @ W.ravel()).min()
    lower = dual.sum() / np.linalg.norm(pulled, 2)
    assert lower <= upper * (1 + 1e-12) and upper - lower <= tol * upper
    assert float(solution.value) == pytest.approx(upper, rel=2 * tol)
    assert solution.status == Status.OPTIMAL and (A @ W.ravel()).min() >= 1 - tol
    assert np.linalg.norm(pulled, 2) <= 1 + 1e-12 and dual.sum() == pytest.approx(upper, rel=2 * tol)


@pytest.mark.parametrize("kind", KINDS)
def test_solved_with_a_certificate_or_proved_infeasible(kind):
    for seed in range(15):
        X, z, selected = problem(kind, seed)
        try:
            solution = attention_svm(X, z, selected, norm="nuc")
        except InfeasibleError:
            assert not separable(X, z, selected), (kind, seed)
            continue
        # With rows of sizes up to 1e12 apart the order of operations decides the last digits of small margins.
        assert_certified(X, z, selected, solution, tol=1e-5 if kind == "scales" else 1e-9)


@pytest.mark.parametrize("shape", [(6, 8, 10), (15, 5, 20), (10, 20, 50), (3, 4, 6), (3, 3, 2), (30, 32, 64)])
def test_random_problems_reach_rounding(shape):
    n, T, d = shape
    data = token_selection(n, T, d, seed=3, batch=(25 if d < 50 else 2,))
    solution = attention_svm(data.X, data.z, torch.zeros(*data.X.shape[:2], dtype=torch.int64), norm="nuc")
    feasible = solution.status != Status.INFEASIBLE
    assert feasible.any() and (solution.gap[feasible] <= 1e-12).all() and (solution.uniqueness[feasible] == 1).all()


@pytest.mark.parametrize("shape", [(6, 8, 4), (15, 5, 6), (4, 6, 2)])
def test_hard_sets_are_certified_or_rightly_refused(shape):
    """Random tokens, random selections: many are infeasible, and the others have tiny margins."""
    n, T, d = shape
    rng = np.random.default_rng(shape)
    X, z, selected = rng.normal(size=(30, n, T, d)), rng.normal(size=(30, n, d)), rng.integers(0, T, (30, n))
    solution = attention_svm(X, z, selected, norm="nuc")
    for k in range(30):
        feasible = separable(X[k], z[k], selected[k])
        assert (solution.status[k] != Status.INFEASIBLE) == feasible, k
        if feasible:
            assert solution.status[k] == Status.OPTIMAL, (k, float(solution.gap[k]))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.floats(-3, 3), st.floats(-3, 3))
def test_value_scales_and_turns_with_the_data(seed, a, b):
    """X -> 10^a X R^T, z -> 10^b z S^T takes W to R W S^T / 10^(a+b): the value scales, nothing else changes."""
    X, z, selected = problem("plain", seed)
    rng = np.random.default_rng(seed)
    R, S = (np.linalg.qr(rng.normal(size=(X.shape[2],) * 2))[0] for _ in range(2))
    try:
        plain = attention_svm(X, z, selected, norm="nuc")
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            attention_svm(10.0**a * X @ R.T, 10.0**b * z @ S.T, selected, norm="nuc")
        return
    moved = attention_svm(10.0**a * X @ R.T, 10.0**b * z @ S.T, selected, norm="nuc")
    assert float(moved.value) * 10.0 ** (a + b) == pytest.approx(float(plain.value), rel=1e-8)
    assert plain.rank == moved.rank


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_between_the_frobenius_value_and_root_rank_times_it(seed):
    X, z, selected = problem("plain", seed)
    try:
        fro, nuc = (attention_svm(X, z, selected, norm=norm) for norm in ("fro", "nuc"))
    except InfeasibleError:
        return
    r = int(nuc.rank)
    assert r <= min(X.shape[0], X.shape[2])
    assert float(fro.value) <= float(nuc.W.norm()) * (1 + 1e-9)
    assert float(nuc.value) <= float(torch.linalg.matrix_norm(fro.W, "nuc")) * (1 + 1e-9)
    assert float(nuc.value) <= np.sqrt(r) * float(nuc.W.norm()) * (1 + 1e-9)


def test_a_batch_is_its_problems_one_by_one():
    rng = np.random.default_rng(0)
    X, z, selected = rng.normal(size=(2, 3, 4, 5, 3)), rng.normal(size=(2, 3, 4, 3)), rng.integers(0, 5, (2, 3, 4))
    batch = attention_svm(X, z, selected, norm="nuc")
    for k in itertools.product(range(2), range(3)):
        if batch.status[k] == Status.INFEASIBLE:
            assert batch.value[k] == np.inf and batch.uniqueness[k] == 0 and batch.rank[k] == -1
            with pytest.raises(InfeasibleError):
                attention_svm(X[k], z[k], selected[k], norm="nuc")
        else:
            alone = attention_svm(X[k], z[k], selected[k], norm="nuc")
            assert torch.equal(batch.W[k], alone.W)


# The parts, each alone: a broken one would otherwise be mended by the next.


def reduced(seed, shape=(4, 5, 6)):
    data = token_selection(*shape, seed=seed)
    constraints = assemble(*check(data.X, data.z, np.zeros(shape[0], int)))
    plain = solve_frobenius(constraints, 1e-9)
    return nuclear.Reduced(constraints, 0, plain), Best(constraints, "nuc")


@pytest.mark.parametrize("seed", range(4))
def test_interior_point_steps_alone_reach_1e_8(seed):
    problem_, best = reduced(seed)
    inner = Interior(problem_.program, problem_.start)
    for _ in range(25):
        inner.step()
        if inner.gap < 1e-8 or inner.stuck:
            break
    problem_.offer(inner.W, inner.lam, best)
    assert best.gap[0] <= 1e-8
    assert np.linalg.eigvalsh(inner.X)[0] > 0 and (inner.s > 0).all() and (inner.lam > 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_clarabel_alone_certifies(seed):
    problem_, best = reduced(seed)
    problem_.offer(*nuclear.conic(problem_.program), best)
    assert best.gap[0] <= 1e-8


def test_without_the_interior_point_method_clarabel_answers(monkeypatch):
    monkeypatch.setattr(nuclear.Reduced, "interior", lambda *_: None)
    data = token_selection(4, 5, 6, seed=1)
    solution = attention_svm(data.X, data.z, [0] * 4, norm="nuc")
    assert solution.status == Status.OPTIMAL and solution.gap <= 1e-12
    monkeypatch.setitem(sys.modules, "clarabel", None)
    left = attention_svm(data.X, data.z, [0] * 4, norm="nuc")
    assert left.status == Status.APPROXIMATE and left.gap > 1e-3 and left.unique is None


def test_the_newton_matrix_is_the_derivative_of_the_residual():
    rng = np.random.default_rng(0)
    u, z, b = rng.normal(size=(5, 4)), rng.normal(size=(5, 3)), rng.normal(size=5)
    Q, lam = rng.normal(size=(3, 2)), rng.normal(size=5)

    def lagrangian(x):
        Q, lam = x[:6].reshape(3, 2), x[6:]
        S = torch.einsum("k,kp,kq->pq", lam, torch.from_numpy(u), torch.from_numpy(z))
        return (Q.square().sum() - (S @ Q).square().sum()) / 2 + torch.from_numpy(b) @ lam

    x = torch.from_numpy(np.concatenate([Q.ravel(), lam]))
    expected = torch.autograd.functional.hessian(lagrangian, x).numpy()
    S = (u.T * lam) @ z
    found = _hessian(u, z, S, Q, u @ S @ Q, z @ Q, np.triu_indices(2, 1))
    turn = np.zeros((3, 2))
    turn[:, 0], turn[:, 1] = Q[:, 1], -Q[:, 0]
    found[:6, :6] -= np.outer(turn, turn)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_polish_sharpens_a_rough_guess_and_mends_its_tight_rows():
    problem_, best = reduced(2)
    inner = Interior(problem_.program, problem_.start)
    while inner.gap > 1e-7:
        inner.step()
    _, values, basis = np.linalg.svd(inner.W, full_matrices=False)
    r = int((values > 1e-4).sum())
    Q = basis[:r].T * np.sqrt(values[:r]) * 1.01
    lam = np.where(inner.lam > inner.s, inner.lam, 0.0) * 1.02
    lam[np.flatnonzero(lam)[0]] = 0.0  # leave out one tight row
    program = problem_.program
    found = polish(program.u, program.z.repeat(4, 0), program.b, program.free, lam, Q)
    problem_.offer(*found, best)
    assert best.gap[0] <= 1e-13


# Uniqueness.


def span(X, z, selected, value):
    """Smallest and largest value of a random linear function of W over all feasible W of norm `value`, by cvxpy."""
    A, d = rows(X, z, selected), X.shape[2]
    W = cp.Variable((d, d))
    direction = np.random.default_rng(0).normal(size=(d, d))
    constraints = [A @ cp.vec(W, order="C") >= 1, cp.normNuc(W) <= value]
    objective = cp.sum(cp.multiply(direction, W))
    return [cp.Problem(sense(objective), constraints).solve(solver=cp.CLARABEL) for sense in (cp.Minimize, cp.Maximize)]


@pytest.mark.parametrize("case", ["diagonal", "random 0", "random 2", "repeated diagonal"])
def test_uniqueness_against_the_spread_of_the_optimal_set(case):
    """Orthogonal unit queries and differences: I and every matrix with unit diagonal and eigenvalues >= 0 tie."""
    if case == "diagonal":
        X, z, selected = np.stack([np.eye(2), np.zeros((2, 2))], 1), np.eye(2), [0, 0]
    elif case == "repeated diagonal":
        X, z, selected = np.stack([np.eye(3), np.zeros((3, 3)), np.zeros((3, 3))], 1), np.eye(3), [0, 0, 0]
    else:
        data = token_selection(3, 3, 3, seed=int(case[-1]))
        X, z, selected = data.X.numpy(), data.z.numpy(), [0, 0, 0]
    solution = attention_svm(X, z, selected, norm="nuc")
    low, high = span(X, z, selected, float(solution.value) * (1 + 1e-6))
    width = (high - low) / float(solution.value)
    assert bool(solution.unique) == (width < 5e-2)
    assert width < 1e-2 or width > 0.1


def test_uniqueness_stays_open_without_strict_complementarity():
    """The matrices of diagonal 1 and nuclear norm 2 form a segment: I inside, the rank-one ones at its ends."""
    program = Program(np.eye(2), np.eye(2), np.array([1.0, 1.0]), np.zeros(2, bool))
    assert uniqueness(program, np.eye(2), np.ones(2)) == NOT_UNIQUE
    assert uniqueness(program, np.ones((2, 2)), np.ones(2)) == OPEN
    one = Program(np.eye(2)[:1], np.eye(2)[:1], np.array([1.0]), np.zeros(1, bool))
    assert uniqueness(one, np.diag([1.0, 0.0]), np.ones(1)) == UNIQUE


def test_a_batch_with_an_open_question_says_none():
    solution = attention_svm([[[[1.0, 0.0], [0.0, 0.0]]]], [[[1.0, 0.0]]], [[0]], norm="nuc")
    assert solution.unique.tolist() == [True]
    assert replace(solution, uniqueness=torch.tensor([-1], dtype=torch.int8)).unique is None
