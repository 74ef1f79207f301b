"""What the page `book/svm/regularisation-path` proves or solves by hand, on problems that its cells do not run."""

import itertools

import numpy as np
import pages
import pytest
import torch

from attncore.course.check import NotDone, PropertyViolated
from attncore.data import TokenSelection
from attncore.squeeze import excess_loss
from attncore.svm import InfeasibleError, attention_svm, attention_svm_low_rank, smallest_margin

NEEDED = ("import ", "plane = ", "def margin", "apart = ", "def factors", "def by_singular_values")
W_PLUS, W_MINUS = (torch.tensor([[2.0, s], [s, 2.0]]).double() for s in (2.0, -2.0))


@pytest.fixture(scope="module")
def page():
    """The names that the page defines in the cells this file is about."""
    return pages.names("svm/regularisation-path", NEEDED)


def nuclear(W):
    return torch.linalg.matrix_norm(W, "nuc")


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["smallest_factors"](page["factors"](page["W5"], 3))


def svd(W):
    U, S, Vh = torch.linalg.svd(W)
    return U[:, :3], S[:3], Vh[:3].mT


@pytest.mark.parametrize("wrong, says", [
    (lambda W: (W[:, :3], torch.eye(5).double()[:, :3]), "K Q\\^T is W"),
    (lambda W: (W, torch.eye(5).double()), "both have shape"),
    (lambda W: (svd(W)[0] * svd(W)[1], svd(W)[2]), "no smaller pair exists"),
    (lambda W: (2 * svd(W)[0] * svd(W)[1].sqrt(), svd(W)[2] * svd(W)[1].sqrt() / 2), "no smaller pair exists"),
    (lambda W: svd(W)[0] * svd(W)[1].sqrt(), "a pair"),
    (lambda W: (torch.full((5, 3), torch.nan), torch.ones(5, 3)), "entries are finite"),
])
def test_wrong_factors_violate_a_property(page, wrong, says):
    with pytest.raises(PropertyViolated, match=says):
        page["smallest_factors"](wrong(page["W5"]))


def test_the_solution_passes_and_every_rotation_of_it(page, capsys):
    K, Q = page["by_singular_values"](page["W5"], 3)
    turn = torch.linalg.qr(torch.tensor(np.random.default_rng(0).normal(size=(3, 3)))).Q
    page["smallest_factors"]((K, Q))
    page["smallest_factors"]((K @ turn, Q @ turn))
    assert capsys.readouterr().out.count("Holds") == 2


@pytest.mark.parametrize("m", [1, 2, 5])
def test_factors_cost_at_least_the_nuclear_norm(m):
    rng = np.random.default_rng(m)
    K, Q = (torch.tensor(rng.normal(size=(200, 4, m)) * 10 ** rng.uniform(-1, 1, (200, 1, 1))) for _ in range(2))
    assert bool((nuclear(K @ Q.mT) <= (K.square().sum((1, 2)) + Q.square().sum((1, 2))) / 2 * (1 + 1e-12)).all())


def test_the_rank_one_example_by_random_search(page):
    """Value 4, in W_plus and W_minus alone, among rank-one matrices of margin one; 2 and I without the bound."""
    prob, rng = page["apart"], np.random.default_rng(0)
    pairs = torch.tensor(rng.normal(size=(2, 400_000, 2)))
    W = torch.einsum("bi,bj->bij", *pairs)
    m = page["margin"](prob, W)
    W = W[m > 0] / m[m > 0, None, None]
    assert len(W) > 10_000 and bool((nuclear(W) >= 4 - 1e-9).all())
    near = W[nuclear(W) < 4.1]
    assert len(near) > 10
    to = torch.stack([(near - V).norm(dim=(1, 2)) for V in (W_PLUS, W_MINUS)])
    assert bool((to.amin(0) < 1).all()) and bool((to.argmin(0) == 0).any()) and bool((to.argmin(0) == 1).any())
    full = torch.tensor(rng.normal(size=(200_000, 2, 2))) + torch.eye(2)
    m = page["margin"](prob, full)
    assert bool((nuclear(full[m > 0]) / m[m > 0] >= 2 - 1e-9).all())
    assert float(attention_svm_low_rank(prob.X, prob.z, prob.optimal, m=1).value) == pytest.approx(4)


@pytest.mark.parametrize("radius", [20.0, 100.0])
def test_of_the_two_rank_one_solutions_only_one_is_a_limit(page, radius):
    """The best rank-one matrix in the ball, by brute force over its two angles."""
    theta = torch.arange(0, 2 * torch.pi, 0.02).double()
    ray = torch.stack([theta.cos(), theta.sin()], -1)
    W = radius * torch.einsum("ai,bj->abij", ray, ray[theta < torch.pi]).reshape(-1, 2, 2)
    best = W[excess_loss(page["apart"], W).argmin()]
    assert torch.allclose(best / radius, W_PLUS / 4, atol=0.02)
    assert float(excess_loss(page["apart"], radius * W_MINUS / 4)) > 2.9 * float(
        excess_loss(page["apart"], radius * W_PLUS / 4))


def test_not_every_best_choice_is_a_limit(page):
    """The counter-example on ties: two choices of the same norm, one limit."""
    tied = TokenSelection([[[1, 0], [0, 1], [0, 0], [-1, 0]]], [[1, 0]], [1], [1, 1])
    for R in (10, 100, 300):
        p = page["scan"](R, lambda p: excess_loss(tied, p[:, :, None] * tied.z[0]), rings=1)
        assert p[0] > 0.99 * R


@pytest.mark.parametrize("power", [3, 5])
def test_a_flat_loss_changes_the_limit(page, power):
    """-u^3 and -u^5 in scores 0 and 1: margins in proportion 1 : 3 and 1 : 5, by a scan."""
    def loss(m):
        one, two = torch.sigmoid(-m).T
        return one**power / 2 - torch.expm1(power * torch.log1p(-two)) / 2

    m = page["scan"](300, loss)
    assert torch.allclose(m / m[0], torch.tensor([1.0, power]).double(), atol=0.05)


def test_tokens_with_opposite_labels_are_out_of_reach():
    rng = np.random.default_rng(2)
    for T, d in itertools.product((2, 4), (2, 5)):
        X, z = rng.normal(size=(T, d)), rng.normal(size=d)
        prob = TokenSelection([X, X], [z, z], [1, -1], rng.normal(size=d))
        with pytest.raises(InfeasibleError):
            attention_svm(prob.X, prob.z, prob.optimal)
        W = torch.tensor(rng.normal(size=(500, d, d)) * 20)
        assert smallest_margin(W, prob.X, prob.z, prob.optimal).max() <= 0


def test_a_path_that_does_not_settle():
    """The exercise by hand: a segment of nuclear solutions, and a loss that is the same on all of it."""
    prob = TokenSelection([[[0, 0], [-1, 0]], [[0, 0], [0, -1]]], np.eye(2), [1, 1], [1, 1])
    svm = attention_svm(prob.X, prob.z, prob.optimal, norm="nuc")
    assert float(svm.value) == pytest.approx(2) and not bool(svm.unique)
    assert torch.allclose(attention_svm(prob.X, prob.z, prob.optimal).W, torch.eye(2).double())
    theta = torch.linspace(-1, 1, 9).double()[:, None, None]
    W = torch.eye(2).double() + theta * torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert torch.allclose(nuclear(W), torch.tensor(2.0).double())
    assert torch.allclose(excess_loss(prob, 10 * W), excess_loss(prob, 10 * W[0]), rtol=1e-12)
    rng = np.random.default_rng(0)
    other = torch.tensor(rng.normal(size=(20_000, 2, 2))) + 0.7 * torch.eye(2)
    other *= 20 / nuclear(other)[:, None, None]
    assert bool((excess_loss(prob, other) >= excess_loss(prob, 10 * W[0])).all())


def test_other_balls(page):
    """The solution sets of the planar problem in the sum and in the maximum norm."""
    w = torch.tensor([[-3.5, 0.5], [0, 1], [-1, 0.5], [1.5, 2], [0, 1.5], [1, 2]]).double()
    p = torch.tensor([-0.5, 1.0]).double()
    assert torch.allclose(page["p_svm"], p) and (w @ p).min() == 1
    rng = np.random.default_rng(1)
    any_p = torch.tensor(rng.normal(size=(200_000, 2)))
    m = (any_p @ w.T).amin(1)
    scaled = any_p[m > 0] / m[m > 0, None]
    assert scaled.abs().sum(1).min() >= 1.5 - 1e-12 and scaled.abs().amax(1).min() >= 1 - 1e-12
    for x, inside in ((-0.7, False), (-2 / 3, True), (-0.6, True), (-0.5, True), (-0.45, False)):
        assert bool((w @ torch.tensor([x, 1.0], dtype=torch.float64)).min() >= 1 - 1e-12) == inside
