"""Verdicts on selections: global, locally optimal, or neither."""

import numpy as np
import pytest
import torch

from attncore.svm import Verdict, attention_svm, local_optimality

X = [[[2.0, 0.0], [0.0, 0.0], [-9.0, 0.0]]]
Z = [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [([3.0, 1.0, 2.0], Verdict.GLOBAL), ([1.0, 0.0, 5.0], Verdict.LOCAL), ([1.0, 1.0, 5.0], Verdict.NEITHER),
     ([1.0, 2.0, 0.0], Verdict.NEITHER), ([2.0, 2.0, 1.0], Verdict.GLOBAL)],
)
def test_only_support_tokens_count(scores, verdict):
    found = local_optimality(X, Z, [scores], [0])
    assert Verdict(int(found.verdict)) == verdict
    assert found.support.tolist() == [[False, True, False]]
    assert float(found.clearance) == pytest.approx(4.5)
    assert found.norm == "fro" and "unique" in found.minimiser


def test_support_is_by_margin_not_by_multiplier():
    """A copy of the support token has multiplier zero, yet lies on the margin and counts."""
    tokens = [[[2.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]
    solution = attention_svm(tokens, Z, [0])
    assert (solution.dual > 0).sum() == 1
    found = local_optimality(tokens, Z, [[1.0, 0.0, 5.0]], [0], solution=solution)
    assert found.support.tolist() == [[False, True, True]] and found.verdict == Verdict.NEITHER


def test_infeasible_selections_are_neither_unless_global():
    hull = [[[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]]
    for scores, verdict in [([1.0, 0.0, 0.0], Verdict.GLOBAL), ([1.0, 0.0, 2.0], Verdict.NEITHER)]:
        found = local_optimality(hull, Z, [scores], [0])
        assert found.verdict == verdict and not found.feasible and not found.support.any() and found.clearance.isnan()


def test_a_batch_agrees_with_the_definition():
    rng = np.random.default_rng(4)
    tokens, z, scores = rng.normal(size=(40, 3, 5, 4)), rng.normal(size=(40, 3, 4)), rng.normal(size=(40, 3, 5))
    selected = np.where(rng.random((40, 3)) < 0.7, scores.argmax(-1), rng.integers(0, 5, (40, 3)))
    found = local_optimality(tokens, z, scores, selected)
    solution = attention_svm(tokens, z, selected)
    seen = set()
    for b in range(40):
        best = local = True
        for i in range(3):
            for t in range(5):
                if t == selected[b, i]:
                    continue
                better = scores[b, i, selected[b, i]] > scores[b, i, t]
                best &= better
                margin = (tokens[b, i, selected[b, i]] - tokens[b, i, t]) @ solution.W[b].numpy() @ z[b, i]
                local &= better or not margin <= 1 + 1e-6
        local &= bool(solution.status[b] != 2)
        expected = Verdict.GLOBAL if best else Verdict.LOCAL if local else Verdict.NEITHER
        assert found.verdict[b] == expected
        seen.add(expected)
    assert seen == set(Verdict)


def test_nuclear_support_says_which_minimiser_and_bad_scores_are_refused():
    found = local_optimality(X, Z, [[1.0, 0.0, 5.0]], [0], norm="nuc", tol=1e-4)
    assert found.norm == "nuc" and "others may" in found.minimiser and found.verdict == Verdict.LOCAL
    with pytest.raises(ValueError, match="scores must have shape"):
        local_optimality(X, Z, torch.zeros(1, 2), [0])
    with pytest.raises(ValueError, match="tol must be at least 0"):
        local_optimality(X, Z, [[1.0, 0.0, 5.0]], [0], tol=-1.0)
    for verdict in Verdict:
        assert verdict.message.endswith(".")
