"""`certify`: sound bounds for any candidate and any weights, against the solver and the referee."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from svm_problems import problem, rows, separable

from attncore.geometry import correlation
from attncore.svm import Certificate, attention_svm, certify
from attncore.svm.assess import package
from attncore.svm.constraints import assemble

FEASIBLE_SEEDS = [seed for seed in range(60) if separable(*problem("plain", seed))]


@given(st.sampled_from(FEASIBLE_SEEDS), st.integers(0, 2**31), st.floats(0, 2), st.sampled_from(["fro", "nuc"]))
def test_any_candidate_and_any_weights_bound_the_value(seed, noise, size, norm):
    X, z, selected = problem("plain", seed)
    exact = attention_svm(X, z, selected, norm="fro")
    generator = torch.Generator().manual_seed(noise)
    step = torch.randn(exact.W.shape, generator=generator, dtype=torch.float64)
    W = exact.W + size * exact.value * step / step.norm()
    weights = torch.rand(exact.dual.shape, generator=generator, dtype=torch.float64)
    proof = certify(W, X, z, selected, norm=norm, dual=weights)
    if norm == "fro":
        value, cosine = exact.value, correlation(W, exact.W)
        assert proof.lower <= value * (1 + 1e-9) and value <= proof.upper * (1 + 1e-9)
        assert cosine >= proof.cosine - 1e-9
        assert certify(W, X, z, selected).cosine >= proof.cosine - 1e-9
    else:
        # |W|_* >= |W|_F for all W, so the Frobenius value is a lower bound, sqrt(d) times it an upper one.
        assert proof.lower <= exact.value * np.sqrt(X.shape[-1]) * (1 + 1e-9)
        assert exact.value <= proof.upper * (1 + 1e-9)
        assert proof.cosine.isnan()


@pytest.mark.parametrize("norm", ["fro", "nuc"])
def test_bounds_meet_at_the_solution_and_hold_against_the_referee(norm):
    from attncore.svm.reference import reference_svm

    for seed in FEASIBLE_SEEDS[:6]:
        X, z, selected = problem("plain", seed)
        W = reference_svm(X, z, np.arange(X.shape[1]) == selected[:, None], norm).W
        proof = certify(W, X, z, selected, norm=norm)
        value = float(attention_svm(X, z, selected, norm=norm).value)
        assert float(proof.lower) <= value * (1 + 1e-12)
        assert value <= float(proof.upper) * (1 + 1e-6)
        assert float(proof.gap) < 1e-4
        if norm == "fro":
            assert float(proof.cosine) > 1 - 1e-4


def test_a_trajectory_is_certified_at_once():
    X, z, selected = problem("plain", FEASIBLE_SEEDS[0])
    X, z, selected = np.stack([X, 2 * X]), np.stack([z, z]), np.stack([selected, selected])
    solution = attention_svm(X, z, selected)
    trajectory = torch.stack([solution.W, 3 * solution.W, -solution.W])
    proof = certify(trajectory, X, z, selected)
    assert isinstance(proof, Certificate) and proof.gap.shape == (3, 2)
    torch.testing.assert_close(proof.upper[0], solution.value)
    torch.testing.assert_close(proof.cosine[1], torch.ones(2, dtype=torch.float64))
    assert (proof.upper[2] == torch.inf).all() and (proof.cosine[2] == -1).all() and (proof.gap[2] == 1).all()


def test_infeasible_and_unconstrained_problems():
    hull = [[[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]]
    proof = certify(np.eye(2), hull, [[1.0, 0.0]], [0])
    assert proof.lower == torch.inf and proof.upper == torch.inf and proof.gap.isnan() and proof.cosine.isnan()
    free = certify(np.eye(2), [[[1.0, 0.0]]], [[1.0, 0.0]], [0])
    assert free.lower == 0 and free.upper == 0 and free.gap == 0 and free.margin == torch.inf


def test_zero_weights_say_nothing_and_negative_ones_are_refused():
    X, z, selected = problem("plain", FEASIBLE_SEEDS[0])
    W, dual = attention_svm(X, z, selected).W, torch.zeros(X.shape[:2], dtype=torch.float64)
    assert certify(W, X, z, selected, dual=dual).lower == 0
    with pytest.raises(ValueError, match="dual must be non-negative"):
        certify(W, X, z, selected, dual=dual - 1)
    with pytest.raises(ValueError, match="dual must have shape"):
        certify(W, X, z, selected, dual=dual[:, :1])
    with pytest.raises(ValueError, match="W must have shape"):
        certify(W[:-1], X, z, selected)


def test_margins_are_those_of_the_definition():
    from attncore.svm import margins, smallest_margin

    X, z, selected = problem("plain", 5)
    W = np.random.default_rng(0).normal(size=(X.shape[-1], X.shape[-1]))
    found = margins(W, X, z, selected).numpy()
    other = np.arange(X.shape[1]) != selected[:, None]
    np.testing.assert_allclose(found[other], rows(X, z, selected) @ W.ravel(), rtol=1e-12, atol=1e-12)
    assert (found[~other] == 0).all()
    for scale in (1, -1):  # the zeros at the selected tokens are no margins
        assert float(smallest_margin(scale * W, X, z, selected)) == (scale * found[other]).min()
    both = smallest_margin(np.stack([W, -W]), X, z, selected)
    assert both.tolist() == [found[other].min(), (-found[other]).min()]


def test_the_kkt_residual_sees_a_multiplier_on_a_row_that_is_not_tight():
    """W = e_1 e_1^T is the weighted sum of the rows, and feasible: only complementary slackness fails."""
    X, z, selected = (torch.tensor(a) for a in ([[[2.0, 0.0], [0.0, 0.0], [1.0, 0.0]]], [[1.0, 0.0]], [0]))
    rows, W = assemble(X, z, selected), np.diag([2.0, 0.0])[None]  # rows are scaled by 2: diag(1, 0) on the data
    found = package(rows, W, np.array([[[2.0, 0.0]]]), np.full((1, 1, 2), np.nan), np.ones(1), "fro", 1e-9, X)
    assert found.W.tolist() == [[1.0, 0.0], [0.0, 0.0]] and found.max_violation == 0
    assert found.gap == 0.5 and found.kkt_residual == 1.0


def test_max_violation_counts_equations():
    X, z, selected = (torch.tensor(a) for a in ([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], [[1.0, 0.0]], [0]))
    rows = replace(assemble(X, z, selected), equal=np.array([[[True, False]]]))
    W = np.array([[[1.0, 0.0], [0.75, 0.0]]])  # logits 1 and 3/4 where they should be equal
    found = package(rows, W, np.zeros((1, 1, 2)), np.full((1, 1, 2), np.nan), np.ones(1), "fro", 1e-9, X)
    assert found.max_violation == 0.25 and found.kkt_residual >= 0.25


def test_nearly_infeasible_is_not_infeasible():
    """The selected token sticks out of the line between the others by 1e-6: |W^mm| = 1e6, and finite."""
    X, z = [[[0.0, 1e-6], [1.0, 0.0], [-1.0, 0.0]]], [[1.0, 0.0]]
    W = np.array([[0.0, 0.0], [1.0, 0.0]])
    proof = certify(W, X, z, [0], dual=[[0.0, 0.5, 0.5]])
    assert float(proof.lower) == pytest.approx(1e6, rel=1e-9) and float(proof.cosine) == pytest.approx(1.0)
