"""The opening of the cone around a local SVM direction, against what it promises of every direction inside."""

import math

import numpy as np
import pytest
import torch

from attncore.data import token_selection
from attncore.svm import attention_svm, local_cone, local_optimality, margins


def problems(count=300, n=2, T=4, d=3):
    data = token_selection(n, T, d, seed=4, batch=count)
    chosen = torch.tensor(np.random.default_rng(1).integers(0, T, (count, n)))
    return data, chosen


def inside(data, chosen, svm, W):
    """Whether every gap is positive and every rival's gap above the best margin, for W of norm one."""
    gap = margins(W, data.X, data.z, chosen)
    own = torch.nn.functional.one_hot(chosen, gap.shape[-1]).bool()
    rival = ~own & (data.scores >= data.scores.gather(-1, chosen[..., None]))
    return (gap > 0).logical_or(own).all(-1).all(-1) & (gap > 1 / svm.value[:, None, None]).logical_or(
        ~rival).all(-1).all(-1)


def turned(svm, towards, angle):
    """The SVM direction, turned by the angle towards another matrix."""
    U = svm.W / svm.value[:, None, None]
    side = towards - (towards * U).sum((1, 2), keepdim=True) * U
    side = side / side.norm(dim=(1, 2), keepdim=True)
    return angle.cos()[:, None, None] * U + angle.sin()[:, None, None] * side


def test_every_direction_inside_keeps_the_promise_and_one_just_outside_breaks_it():
    data, chosen = problems()
    some = local_cone(data.X, data.z, data.scores, chosen) > 1e-3
    assert 20 < int(some.sum()) < 200
    data, chosen = data[some], chosen[some]
    svm = attention_svm(data.X, data.z, chosen)
    opening = local_cone(data.X, data.z, data.scores, chosen, solution=svm)
    rng = np.random.default_rng(0)
    for _ in range(50):
        W = turned(svm, torch.tensor(rng.normal(size=tuple(svm.W.shape))), 0.999 * opening)
        assert bool(inside(data, chosen, svm, W).all())
    own = data.X.take_along_dim(chosen[..., None, None], -2)
    D = torch.einsum("bitd,bie->bitde", own - data.X, data.z).flatten(1, 2)
    broken = torch.zeros_like(some[some])
    for towards in D.unbind(1):
        ok = towards.norm(dim=(1, 2)) > 0  # the chosen token's own difference turns nothing
        away = torch.where(ok[:, None, None], -towards, torch.ones_like(towards))
        broken |= ok & ~inside(data, chosen, svm, turned(svm, away, opening + 1e-4))
    assert bool(broken.all())


def test_open_exactly_for_locally_optimal_selections():
    data, chosen = problems()
    opening = local_cone(data.X, data.z, data.scores, chosen)
    judged = local_optimality(data.X, data.z, data.scores, chosen)
    local = judged.feasible & (judged.verdict < 2)
    assert 0 < int(local.sum()) < len(local)
    assert torch.equal(opening > 0, local)


def test_infeasible_selections_have_none_and_batches_agree_with_single_problems():
    hull = [[[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]]
    assert float(local_cone(hull, [[1.0, 0.0]], [[1.0, 0.0, 0.0]], [0])) == 0
    data, chosen = problems(5)
    whole = local_cone(data.X, data.z, data.scores, chosen)
    single = [local_cone(data.X[b], data.z[b], data.scores[b], chosen[b]) for b in range(5)]
    torch.testing.assert_close(whole, torch.stack(single))


def test_by_hand():
    """Support token at (0, 0), rival at (-1, 1): D = (2, 0) and (3, -1), so arccos(2/sqrt 10) - arccos(3/sqrt 10)."""
    found = local_cone([[[2.0, 0.0], [0.0, 0.0], [-1.0, 1.0]]], [[1.0, 0.0]], [[1.0, 0.0, 3.0]], [0])
    assert float(found) == pytest.approx(math.acos(2 / math.sqrt(10)) - math.acos(3 / math.sqrt(10)), rel=1e-12)


def test_another_norm_is_refused():
    data, chosen = problems(2)
    with pytest.raises(ValueError, match="norm 'fro'"):
        local_cone(data.X, data.z, data.scores, chosen,
                   solution=attention_svm(data.X, data.z, chosen, norm="nuc"))
