"""The gradient flow: closed form against integration, over twelve decades, and the laws at late times."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attncore import incontext

DECADES = np.logspace(0, 12, 25)


@given(st.integers(2, 200), st.floats(0.005, 0.95), st.floats(0.0, 1.0))
def test_odds_at_inverts_the_closed_form(K, p_k, exponent):
    start = p_k / (1 - p_k)
    odds = start * (1e8 / start) ** exponent
    time = incontext.closed_form(K, p_k, odds)
    assert float(incontext.odds_at(K, p_k, time)) == pytest.approx(odds, rel=1e-11)


def test_the_closed_form_solves_its_equation():
    """d(eta t)/do = (1 + o)^3 / o^2 (K-1)^2 / (K^2 p_k), by central differences."""
    K, p_k, o, h = 7, 0.2, torch.tensor([0.3, 1.0, 9.0], dtype=torch.float64), 1e-4
    slope = (incontext.closed_form(K, p_k, o + h) - incontext.closed_form(K, p_k, o - h)) / (2 * h)
    expected = (1 + o) ** 3 / o**2 * (K - 1) ** 2 / (K**2 * p_k)
    torch.testing.assert_close(slope, expected, rtol=1e-6, atol=0)
    assert float(incontext.closed_form(K, p_k, p_k / (1 - p_k))) == 0.0


def test_integration_meets_the_closed_form():
    closed = incontext.flow("closed", DECADES, K=20, p1=0.5)
    numeric = incontext.flow("mean_field", DECADES, K=20, p1=0.5)
    torch.testing.assert_close(numeric.columns["dominant"].A, closed.columns["dominant"].A, rtol=0, atol=1e-9)
    torch.testing.assert_close(numeric.columns["under"].A, closed.columns["under"].A, rtol=0, atol=1e-12)
    assert float(closed.columns["dominant"].A[-1]) > 10


def test_descent_follows_the_flow_at_rate_eta():
    flow = incontext.flow("closed", [100.0], K=10).columns["balanced"].A[0]
    runs = [incontext.simulate("mean_field", K=10, eta=eta, steps=int(100 / eta)) for eta in (0.5, 0.25, 0.125)]
    errors = [abs(run.columns["balanced"].A[-1] - flow) for run in runs]
    assert float(errors[0] / errors[1]) == pytest.approx(2, abs=0.05)
    assert float(errors[1] / errors[2]) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("kwargs", [{"K": 10}, {"K": 10, "p1": 0.5}, {"p": [0.4, 0.3, 0.2, 0.1]}])
def test_universal_law(kwargs):
    """eta t (L - L*) tends to (K - 1) / 4 whatever p is."""
    run = incontext.flow("exact", [1e7, 1e9], N=40, eta=2.0, **kwargs)
    K = int(run.K)
    scaled = run.eta * run.steps * (run.loss - run.floor)
    # the correction is of order 1 / sqrt t
    assert float(scaled[0]) == pytest.approx((K - 1) / 4, rel=2e-2)
    assert float(scaled[1]) == pytest.approx((K - 1) / 4, rel=3e-3)
    for column in run.columns.values():
        expected = (K - 1) / (4 * K * column.p_k)
        assert float((run.eta * run.steps * column.excess)[1]) == pytest.approx(float(expected), rel=5e-3)


@pytest.mark.parametrize("kwargs", [{"K": 5, "N": 3, "p1": 0.8}, {"p": [0.4, 0.3, 0.2, 0.1], "N": 5}])
def test_short_prompts_stay_integrable_to_the_end(kwargs):
    """Prompts without v_k keep a rate that does not decay, while all that still moves is of order 1e-12."""
    run = incontext.flow("exact", [1e10, 1e12], **kwargs)
    K = int(run.K)
    for column in run.columns.values():
        law = (run.steps * column.excess)[0] * 4 * K * column.p_k / (K - 1)
        assert float(law) == pytest.approx(1.0, rel=2e-3)
        late = column.A[1] - column.A[0]
        # A grows by (K - 1) / (2 K) log t
        assert float(late) == pytest.approx((K - 1) / (2 * K) * np.log(100), rel=1e-3)


@pytest.mark.parametrize("p", [[0.5] + [0.5 / 9] * 9, [0.4, 0.3, 0.2, 0.1]])
def test_mean_field_shape_at_late_times(p):
    """Competitors end with equal attention, and both logits follow the asymptotic formula."""
    run = incontext.flow("mean_field", [1e12, 1e20], p=p)
    K, p = len(p), torch.tensor(p, dtype=torch.float64)
    gaps = []
    for index, t in enumerate(run.steps.tolist()):
        M, spread = run.matrix(index), 0.0
        for k in range(K):
            others = torch.arange(K) != k
            u = 0.5 * torch.log(2 * t * K**2 * p[others].log().mean().mul(2).exp() / p[k])
            limit = p[others].log().mean() - p.log() - u / K
            limit[k] = (K - 1) / K * u
            spread = max(spread, float((M[:, k] - limit).abs().max()))
        gaps.append(spread)
    # the shape settles like t^(-(K + 1) / (2 K^2))
    assert gaps[1] / gaps[0] == pytest.approx(1e8 ** (-(K + 1) / (2 * K**2)), rel=0.15)
    assert gaps[1] < 0.06


def test_a_batch_of_flows_is_its_settings_one_by_one():
    together = incontext.flow("exact", DECADES[:12], K=[4, 9], N=[20, 50], p1=0.4)
    for i, (K, N) in enumerate([(4, 20), (9, 50)]):
        alone = incontext.flow("exact", DECADES[:12], K=K, N=N, p1=0.4)
        for name in ("dominant", "under"):
            torch.testing.assert_close(together.columns[name].A[:, i], alone.columns[name].A, rtol=0, atol=1e-8)


@pytest.mark.parametrize("p1", [None, 0.5])
def test_late_attention_matrix_is_along_the_svm_direction(p1):
    run = incontext.flow("mean_field", [1e3, 1e12], K=10, p1=p1)
    svm = torch.eye(10, dtype=torch.float64) - 0.1
    assert float(svm.norm()) == pytest.approx(3.0)
    early, late = (float((run.matrix(i) * svm).sum() / (run.matrix(i).norm() * svm.norm())) for i in (0, 1))
    if p1 is None:
        assert early == pytest.approx(1.0, abs=1e-12) and late == pytest.approx(1.0, abs=1e-12)
    else:
        assert early == pytest.approx(0.945, abs=2e-3) and late == pytest.approx(0.992, abs=1e-3)


@pytest.mark.parametrize("call, words", [
    (lambda: incontext.flow("token", [1.0], K=4, N=5), "level"),
    (lambda: incontext.flow("exact", [1.0, 1.0], K=4, N=5), "strictly increasing"),
    (lambda: incontext.flow("exact", [-1.0], K=4, N=5), "times"),
    (lambda: incontext.closed_form(4, 0.25, 0.1), "odds must be at least"),
    (lambda: incontext.closed_form(1, 0.25, 1.0), "K must be whole"),
    (lambda: incontext.odds_at(4, 1.5, 1.0), "p_k must lie"),
    (lambda: incontext.odds_at(4, 0.25, -1.0), "negative"),
])
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
