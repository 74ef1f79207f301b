"""The published experiment on nonlinear heads: draws, the filter rule by rule, and the fit of what it accepts."""

import numpy as np
import pytest
import torch

from attncore.attention import attend
from attncore.data import TokenSelection
from attncore.geometry import correlation
from attncore.several_tokens import Outcome, compare_selection, relu_problems
from attncore.svm import attention_svm_multi, finite_part
from attncore.training import train


def test_draws_have_the_published_distribution_and_depend_on_seed_and_number_only():
    many = relu_problems(3, 4, 5, seed=2, batch=400)
    norms = many.hidden.norm(dim=(1, 2))
    torch.testing.assert_close(norms, torch.ones_like(norms))
    bound = 5**-0.5
    assert many.start.abs().max() <= bound
    assert float(many.start.square().mean()) == pytest.approx(bound**2 / 3, rel=0.05)
    assert bool((many.prob.v == 1).all())
    part = relu_problems(3, 4, 5, seed=2, batch=3, start=10)
    for name in ("hidden", "start"):
        assert torch.equal(getattr(part, name), getattr(many, name)[10:13])
    assert torch.equal(part.prob.X, many.prob.X[10:13])
    alone = relu_problems(3, 4, 5, seed=2)
    assert alone.hidden.shape == (5, 5) and torch.equal(alone.start, many.start[0])


def test_the_head_is_a_sum_of_units():
    drawn = relu_problems(2, 3, 4, seed=0, batch=2)
    a = attend(drawn.prob.X, torch.full((2, 2, 3), 1 / 3, dtype=torch.float64))
    by_hand = torch.einsum("bij,bnj->bni", drawn.hidden, a).clamp(min=0).sum(-1)
    torch.testing.assert_close(drawn.head.value(a, drawn.prob.v[:, None]), by_hand)


def one(logits, y=-1):
    """A sequence of orthonormal tokens whose logits under W = [logits, 0, ...] are the given ones."""
    T = len(logits)
    W = np.zeros((T, T))
    W[:, 0] = logits
    return TokenSelection([np.eye(T)], [np.eye(T)[0]], [y], np.ones(T)), W


@pytest.mark.parametrize(("logits", "y", "outcome"), [
    ([30, 29, 0], -1, Outcome.ACCEPTED),
    ([30, 29, 0], 1, Outcome.NO_NEGATIVE_LABEL),
    ([30, 29, 20], -1, Outcome.UNCLEAR),
    ([1, 2, 3], -1, Outcome.NOTHING_DROPPED),
    ([30, 0, 20], -1, Outcome.UNCLEAR),
])
def test_each_rule_of_the_filter(logits, y, outcome):
    prob, W = one(logits, y)
    seen = compare_selection(prob, W)
    assert Outcome(int(seen.outcome)) is outcome
    assert bool(seen.accepted) == (outcome is Outcome.ACCEPTED)
    assert bool(seen.correlation.isnan()) == (outcome is not Outcome.ACCEPTED)


def test_the_borders_belong_to_the_side_that_the_docstring_says():
    prob, W = one([np.log(999.0), 0, -60])
    s = compare_selection(prob, W).attention[0]
    assert Outcome(int(compare_selection(prob, W, high=float(s[1])).outcome)) is Outcome.UNCLEAR
    assert bool(compare_selection(prob, W, high=float(s[1]) * 0.999).accepted)


def test_infeasible_sets_are_an_outcome():
    """Tokens on a line: no W can level the first two and put the third below."""
    prob = TokenSelection([[[2.0, 0.0], [1.0, 0.0], [0.0, 0.0]]], [[1, 0]], [-1], [1, 1])
    seen = compare_selection(prob, [[4.0, 0.0], [0.0, 0.0]], low=1e-3)
    assert seen.kept.tolist() == [[True, True, False]]
    assert Outcome(int(seen.outcome)) is Outcome.INFEASIBLE and bool(seen.correlation.isnan())


def test_an_exact_sum_of_the_two_parts_has_correlation_one():
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(4, 2, 4, 6)), rng.normal(size=(4, 2, 6))
    mask = torch.tensor([[True, True, False, False], [False, True, False, False]]).expand(4, 2, 4)
    weights = rng.uniform(0.2, 1, (4, 2, 4))
    fin, mm = finite_part(X, z, mask, weights).W, attention_svm_multi(X, z, mask).W
    W = fin + 20 * mm
    seen = compare_selection(TokenSelection(X, z, -np.ones((4, 2)), np.ones((4, 6))), W)
    assert bool(seen.accepted.all()) and torch.equal(seen.kept, mask)
    assert seen.correlation.min() > 1 - 1e-9
    torch.testing.assert_close(seen.correlation_direction, correlation(W, mm))
    assert seen.correlation_direction.min() < 1 - 1e-4
    outside = seen.attention.masked_fill(mask, 0).amax((-2, -1))
    assert torch.equal(seen.gamma, outside)


def test_unclear_runs_are_fitted_on_request_only_and_keep_their_outcome():
    drawn = relu_problems(3, 4, 4, seed=0, batch=30)
    W = train(drawn.prob, steps=300, head=drawn.head, init=drawn.start, record=300).W[-1]
    strict, loose = compare_selection(drawn.prob, W), compare_selection(drawn.prob, W, unclear=True)
    assert torch.equal(strict.outcome, loose.outcome)
    unclear = strict.outcome == Outcome.UNCLEAR
    assert bool(strict.correlation[unclear].isnan().all())
    assert bool((~loose.correlation[unclear].isnan()).any())
    torch.testing.assert_close(strict.correlation[strict.accepted], loose.correlation[strict.accepted])


def test_bad_input_is_named():
    prob, W = one([30, 29, 0])
    with pytest.raises(TypeError, match="prob must be a TokenSelection"):
        compare_selection(prob.X, W)
    with pytest.raises(ValueError, match="low and high must satisfy low <= high < 1/3, got 0.5 and 0.1"):
        compare_selection(prob, W, low=0.5, high=0.1)
    with pytest.raises(ValueError, match="W must have shape"):
        compare_selection(prob, np.eye(2))
    with pytest.raises(ValueError, match="d must"):
        relu_problems(3, 4, 0)
