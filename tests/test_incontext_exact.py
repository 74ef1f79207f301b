"""Exact expectations: finite sums, the integral and the mean field against plain enumeration."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attncore import incontext
from attncore.incontext.arrays import NUMPY
from attncore.incontext.classes import RELATIVE_ERROR, STEP, LaplaceIntegral, MeanField
from attncore.incontext.counts import count_step
from attncore.incontext.enumeration import count_vectors
from attncore.incontext.exact import BinomialSum, TrinomialSum, binomial_nodes, square_sum, trinomial_nodes
from attncore.incontext.token import Prompts, token_step

logits = st.floats(-6.0, 6.0)
shares = st.floats(0.02, 1.0)


def distribution(values) -> np.ndarray:
    return np.array(values) / np.sum(values)


@given(st.integers(2, 4).flatmap(lambda K: st.tuples(st.lists(logits, min_size=K, max_size=K),
                                                     st.lists(shares, min_size=K, max_size=K),
                                                     st.integers(0, K - 1))), st.integers(1, 7))
def test_the_integral_is_the_enumeration_for_any_p(column, N):
    q, weights, k = column
    p = distribution(weights)
    loss, g = incontext.column_gradient(q, p, k, N)
    moments = incontext.column_moments(q, p, k, N)
    torch.testing.assert_close(moments.loss, loss, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(moments.g, g, rtol=1e-12, atol=2e-15)
    assert abs(float(moments.attention.sum()) - 1) < 1e-13


@given(st.integers(2, 5), st.integers(1, 8), st.floats(0.05, 0.9), st.floats(-1.0, 8.0))
def test_two_scalars_by_the_binomial_sum(K, N, p_k, A):
    q = torch.full((K,), -A / (K - 1), dtype=torch.float64)
    q[0] = A
    loss, g = incontext.column_gradient(q, distribution([p_k] + [(1 - p_k) / (K - 1)] * (K - 1)), 0, N)
    alpha, loss_k, _ = BinomialSum(NUMPY, N, p_k, K - 1, tail=0.0).rates(np.asarray(A))
    assert loss_k == pytest.approx(float(loss), rel=1e-12, abs=1e-16)
    assert alpha == pytest.approx(float(g[0]), rel=1e-11, abs=1e-16)
    assert -alpha / (K - 1) == pytest.approx(float(g[1]), rel=1e-11, abs=1e-16)


@given(st.integers(2, 5), st.integers(1, 8), st.floats(0.05, 0.9), logits, logits, logits)
def test_three_scalars_by_the_trinomial_sum(K, N, p_1, A, B1, Bn):
    p_k = (1 - p_1) / (K - 1)
    q = torch.tensor([A, B1] + [Bn] * (K - 2), dtype=torch.float64)
    loss, g = incontext.column_gradient(q, [p_k, p_1] + [p_k] * (K - 2), 0, N)
    got, loss_k, (rest, _) = TrinomialSum(NUMPY, N, p_k, p_1, K - 2, tail=0.0).rates(np.array([A, B1, Bn]))
    assert loss_k == pytest.approx(float(loss), rel=1e-12)
    np.testing.assert_allclose(got[:K], g[:3], rtol=1e-11, atol=2e-15)
    assert 0 <= rest <= 1


def test_conservation_every_column_sums_to_zero():
    _, g = incontext.column_gradient([0.3, -1.2, 2.0, 0.1], [0.1, 0.2, 0.3, 0.4], 2, 6)
    assert abs(float(g.sum())) < 1e-16
    traj = incontext.simulate("exact", N=30, p=[0.4, 0.3, 0.2, 0.1], steps=300, record=50)
    sums = torch.stack([column.q.sum(-1) for column in traj.columns.values()])
    assert float(sums.abs().max()) < 1e-13
    assert float(traj.columns[3].q[-1].abs().max()) > 0.5


def test_square_sum_is_the_mean_of_squared_counts():
    counts = count_vectors(3, 5)
    number = np.array([np.prod(np.arange(1, 6)) / np.prod([np.prod(np.arange(1, c + 1)) for c in row])
                       for row in counts]) / 3.0**5
    assert number.sum() == pytest.approx(1.0)
    assert (number * (counts**2).sum(1)).sum() == pytest.approx(square_sum(5, 3), rel=1e-14)


@pytest.mark.parametrize("tail", [1e-6, 1e-12, 1e-16])
def test_mass_left_out_is_bounded_as_stated(tail):
    c, weight, dropped = binomial_nodes(2000, 0.03, tail)
    assert len(c) < 300
    assert 1 - weight.sum() <= dropped + 4e-14
    assert 0 < dropped <= tail
    c_k, c_1, weight, dropped = trinomial_nodes(300, 0.03, 0.5, tail)
    assert len(c_k) < 301 * 302 / 2 / 4
    assert 1 - weight.sum() <= dropped + 4e-14
    assert 0 < dropped <= tail
    assert trinomial_nodes(40, 0.1, 0.5, 0.0)[2].sum() == pytest.approx(1.0, abs=1e-14)


def test_truncation_moves_expectations_by_less_than_the_mass():
    state = np.array([2.0, -1.5, 0.1])
    whole = TrinomialSum(NUMPY, 200, 0.03, 0.5, 10, tail=0.0).rates(state)
    for tail in (1e-4, 1e-8, 1e-12):
        model = TrinomialSum(NUMPY, 200, 0.03, 0.5, 10, tail=tail)
        cut = model.rates(state)
        for a, b in ((cut[0][0], whole[0][0]), (cut[0][1], whole[0][1]), (cut[1], whole[1]), (cut[2][0], whole[2][0])):
            assert abs(a - b) <= float(model.dropped) + 1e-15
    traj = incontext.simulate("exact", K=20, N=400, p1=0.5, steps=1, expectation="sum", tail=1e-12)
    assert 0 < float(traj.dropped) <= 1e-12


def test_the_integrals_stated_error_is_small_and_halving_its_step_changes_nothing(monkeypatch):
    assert RELATIVE_ERROR < 2e-15
    N, p_k, p_1, K = 10_000, 0.5 / 19, 0.5, 20
    model = LaplaceIntegral(NUMPY, N, p_k, np.array([p_k, p_1, p_k]), np.array([1.0, 1.0, K - 2.0]))
    for state in (np.zeros(3), np.array([2.0, -1.0, -0.05]), np.array([14.0, -9.0, -0.3])):
        coarse = model.rates(state)
        monkeypatch.setattr("attncore.incontext.classes.STEP", STEP / 2)
        fine = model.rates(state)
        monkeypatch.undo()
        for a, b in zip(coarse, fine, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-13)
        # the sum is cut at 1e-14 of the mass, hence the absolute part
        summed = TrinomialSum(NUMPY, N, p_k, p_1, K - 2, tail=1e-14).rates(state)
        np.testing.assert_allclose(coarse[0], summed[0], rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(coarse[1], summed[1], rtol=1e-11, atol=2e-14)


def test_the_mean_field_is_the_limit_at_rate_one_over_N():
    p, q = np.array([0.1, 0.6, 0.3]), np.array([1.0, -0.7, 0.2])
    limit = MeanField(NUMPY, 0.1, p, np.ones(3)).rates(q)
    errors = [abs(LaplaceIntegral(NUMPY, N, 0.1, p, np.ones(3)).rates(q)[0] - limit[0]).max()
              for N in (10_000, 20_000, 40_000)]
    assert errors[0] / errors[1] == pytest.approx(2, abs=0.02)
    assert errors[1] / errors[2] == pytest.approx(2, abs=0.02)


def test_tokens_and_counts_are_the_same_prompts():
    """At given prompts, averaging the token loss over tasks gives the count level's loss and gradient."""
    generator = np.random.default_rng(3)
    K, N, B = 4, 9, 6
    V = torch.from_numpy(np.linalg.qr(generator.standard_normal((6, K)))[0].T.copy())
    tokens, query = torch.from_numpy(generator.integers(0, K, (B, N))), torch.from_numpy(generator.integers(0, K, B))
    q = torch.from_numpy(generator.standard_normal((K, K)))
    losses, g, a = count_step(q, torch.nn.functional.one_hot(tokens, K).sum(1).double(), query)
    # E w w^T = I exactly, if w runs over sqrt(d) times a basis of R^d
    exact, direction = torch.zeros(B, dtype=torch.float64), 0
    for i in range(6):
        w = torch.zeros(B, 6, dtype=torch.float64)
        w[:, i] = 6**0.5
        part, slope, attention = token_step(V.T @ q @ V, V, Prompts(tokens, query, w))
        exact, direction = exact + part / 6, direction + slope / 6
    torch.testing.assert_close(exact, losses, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(V @ direction @ V.T, g, rtol=1e-12, atol=1e-14)
    outside = direction - V.T @ V @ direction @ V.T @ V
    assert float(outside.abs().max()) < 1e-15
    torch.testing.assert_close(torch.zeros(B, K, dtype=torch.float64).scatter_add(1, tokens, attention), a)


def test_missing_prompts_are_what_the_floor_counts():
    """Towards infinite A the loss tends to the floor of a balanced column, and to nothing lower."""
    alpha, loss, rest = BinomialSum(NUMPY, 20, 0.2, 4, tail=0.0).rates(np.array([500.0, 1e5]))
    floor = 0.5 * 0.8**20 * (1 + 1 / 20 + (1 - 1 / 20) / 4)
    np.testing.assert_allclose(loss, floor, rtol=1e-13)
    np.testing.assert_allclose(rest, 0.8**20, rtol=1e-13)
    assert (alpha < 1e-150).all()
