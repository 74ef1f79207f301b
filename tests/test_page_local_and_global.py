"""What the page `book/svm/local-and-global` promises and its build cannot show.

The property check of the exercise meets wrong answers; the lemma of the cone, the gradient in differences, the limit
theorem and what is solved by hand meet problems other than the page's own.
"""

import math

import numpy as np
import pages
import pytest
import torch

from attncore.course.check import NotDone, PropertyViolated
from attncore.data import TokenSelection, token_selection
from attncore.svm import attention_svm, local_cone, local_optimality, margins
from attncore.training import train

PAGE = "svm/local-and-global"


@pytest.fixture(scope="module")
def page():
    return pages.names(PAGE, ["import ", "tokens = ", "def lengths", "rng = np.random", "def by_pairs"])


def answer(page, function):
    return [function(*case) for case in page["cases"]]


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        answer(page, page["winners"])


@pytest.mark.parametrize("wrong", [
    lambda X, scores: [int(np.argmax(scores))],
    lambda X, scores: list(range(len(X))),
    lambda X, scores: [],
    lambda X, scores: [7],
])
def test_wrong_lists_violate_the_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["descent_agrees"](answer(page, wrong))


def test_support_of_all_near_tokens_violates_the_property(page):
    """The change of tolerance that the solution invites to."""

    def blurred(X, scores):
        found = page["by_pairs"](X, scores)
        keep = []
        for t in found:
            others = np.delete(np.arange(len(X)), t)
            p = attention_svm(X[None], [[1, 0]], [t]).W[:, 0].numpy()
            near = others[(X[t] - X[others]) @ p < 3]
            if (scores[near] < scores[t]).all():
                keep.append(t)
        return keep

    with pytest.raises(PropertyViolated):
        page["descent_agrees"](answer(page, blurred))


def test_too_few_lists_violate_the_property(page):
    with pytest.raises(PropertyViolated):
        page["descent_agrees"](answer(page, page["by_pairs"])[:-1])


def test_right_lists_pass_however_they_are_found_and_in_any_order(page, capsys):
    page["descent_agrees"](answer(page, page["by_pairs"]))

    def by_the_package(X, scores):
        each = torch.arange(6)[:, None]
        found = local_optimality(torch.tensor(X).expand(6, 1, 6, 2), torch.tensor([[1.0, 0.0]]).expand(6, 1, 2),
                                 torch.tensor(scores).expand(6, 1, 6), each)
        return torch.arange(6)[(found.verdict < 2) & found.feasible].tolist()[::-1]

    page["descent_agrees"](answer(page, by_the_package))
    assert capsys.readouterr().out.count("Holds") == 2


def test_two_corners_by_hand(page):
    plane = page["plane"]
    right, bottom = (attention_svm(plane.X, plane.z, [t]) for t in (0, 4))
    torch.testing.assert_close(right.W[:, 0], right.W.new_tensor([0.6, 0.2]))
    torch.testing.assert_close(bottom.W[:, 0], bottom.W.new_tensor([1.5, -2.0]) / 6.25)
    gap = margins(right.W, plane.X, plane.z, [0])[0]
    torch.testing.assert_close(gap * 2.5, gap.new_tensor([0, 2.5, 2.75, 7, 5.75, 9]))
    opening = math.degrees(local_cone(plane.X, plane.z, plane.scores, [0]))
    assert opening == pytest.approx(39.92 - 32.47, abs=0.02)
    verdicts = [int(local_optimality(plane.X, plane.z, plane.scores, [t]).verdict) for t in range(6)]
    assert verdicts == [1, 2, 0, 2, 2, 1]


@pytest.mark.parametrize(("height", "verdict"), [(2.4, 1), (2.5, 2)])
def test_raising_the_decoy_ends_local_optimality(page, height, verdict):
    X = page["plane"].X.clone()
    X[0, 1, 1] = height
    raised = TokenSelection(X, [[1, 0]], [1], [0, 1])
    found = local_optimality(raised.X, raised.z, raised.scores, [0])
    assert found.support[0].tolist() == [False, True, False, False, False, False]
    assert int(found.verdict) == verdict
    if height == 2.5:
        p = attention_svm(raised.X, raised.z, [0]).W[:, 0]
        torch.testing.assert_close(p, p.new_tensor([2 / 3, 0.0]))


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_a_combination_of_differences(page, seed):
    prob = token_selection(3, 5, 4, seed=seed, batch=4)
    rng = np.random.default_rng(seed)
    a = torch.tensor(rng.integers(0, 5, (4, 3)))
    W = torch.tensor(rng.normal(size=(4, 4, 4)) * 2, requires_grad=True)
    s = (prob.X @ (prob.z @ W.mT)[..., None])[..., 0].softmax(-1)
    torch.nn.functional.softplus(-(s * prob.scores).sum(-1)).mean(-1).sum().backward()
    c = page["coefficients"](prob, a, W.detach())
    torch.testing.assert_close(torch.einsum("bit,bitde->bde", c, page["differences"](prob, a)), -W.grad)


def test_far_out_in_the_cone_the_gradient_points_outwards():
    """Part 3 of the lemma for other shapes, by the direction of an exact step; at the norm that the lemma asks for."""
    prob = token_selection(2, 4, 3, seed=11, batch=600)
    a = torch.tensor(np.random.default_rng(0).integers(0, 4, (600, 2)))
    opening = local_cone(prob.X, prob.z, prob.scores, a)
    some = (opening > 0.05).nonzero()[:, 0]
    assert len(some) > 15
    prob, a, opening = prob[some], a[some], opening[some]
    svm = attention_svm(prob.X, prob.z, a)
    rng = np.random.default_rng(1)
    U = svm.W / svm.value[:, None, None]
    E = torch.tensor(rng.normal(size=tuple(U.shape)))
    E -= (E * U).sum((1, 2), keepdim=True) * U
    E /= E.norm(dim=(1, 2), keepdim=True)
    half = (opening / 2)[:, None, None]
    W = 3000 * svm.value[:, None, None] * (half.cos() * U + half.sin() * E)
    step = train(prob, steps=1, lr=1.0, init=W, record=1).W.diff(dim=0)[0]
    assert bool(((step * U).sum((1, 2)) > 0).all()) and bool(((step * W).sum((1, 2)) > 0).all())


def test_limits_of_descent_on_svm_directions_are_locally_optimal():
    """Runs that have turned onto the SVM direction of their selection: no rival in a clear-cut support."""
    prob = token_selection(3, 4, 5, seed=2, batch=80)
    run = train(prob, steps=12000, record=12000)
    a = run.attention.argmax(-1)
    svm = attention_svm(prob.X, prob.z, a)
    cosine = (run.W[-1] * svm.W).sum((1, 2)) / run.W[-1].norm(dim=(1, 2)) / svm.value
    found = local_optimality(prob.X, prob.z, prob.scores, a, solution=svm)
    there = (cosine > 0.9999) & (found.clearance > 0.01)
    assert int(there.sum()) > 40 and bool((found.verdict[there] < 2).all())
    share = [int((found.verdict[there] == v).sum()) for v in (0, 1)]
    assert min(share) > 0


def test_the_balance_of_the_exercise():
    """V = x_1 D_1 + x_2 D_2 with equal gaps, x_2 < 0; the SVM direction is another one."""
    D = torch.tensor([[1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    x = torch.tensor([2.0, -1.0], dtype=torch.float64)
    torch.testing.assert_close(D @ (x @ D), torch.ones(2, dtype=torch.float64))
    svm = attention_svm([[[0, 0], [-1, -1], [-1, -2]]], [[1, 0]], [0])
    torch.testing.assert_close(svm.W[:, 0], svm.W.new_tensor([0.5, 0.5]))
    assert float(margins(svm.W, [[[0, 0], [-1, -1], [-1, -2]]], [[1, 0]], [0])[0, 2]) == pytest.approx(1.5)
