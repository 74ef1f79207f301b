"""What the page `book/svm/attention-chooses-tokens` promises and its build cannot show.

The build runs every cell once. Here the property check of the exercise meets wrong answers, and the solutions
that were found by hand meet the solver.
"""

import itertools

import numpy as np
import pages
import pytest
import torch

from attncore.course.check import NotDone, PropertyViolated
from attncore.data import TokenSelection, token_selection
from attncore.svm import InfeasibleError, attention_svm, margins, smallest_margin

NEEDED = ("import ", "plane = ", "def differences", "def bracket", "def dual_weights", "def projected_gradient")


@pytest.fixture(scope="module")
def page():
    """The names that the page defines in the cells this file is about."""
    return pages.names("svm/attention-chooses-tokens", NEEDED)


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["certify_the_svm"](page["dual_weights"](page["G"]))


@pytest.mark.parametrize("wrong", [
    lambda G: np.zeros(len(G)),
    lambda G: np.ones(len(G)),
    lambda G: np.linalg.lstsq(G, np.ones(len(G)), rcond=None)[0],
    lambda G: np.maximum(0, np.linalg.lstsq(G, np.ones(len(G)), rcond=None)[0]),
])
def test_wrong_duals_violate_a_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["certify_the_svm"](wrong(page["G"]))


def test_the_solution_passes_and_any_multiple_of_it(page, capsys):
    lam = page["projected_gradient"](page["G"])
    page["certify_the_svm"](lam)
    page["certify_the_svm"](7 * lam)
    assert capsys.readouterr().out.count("Holds") == 2


@pytest.mark.parametrize("wrong, says", [
    (lambda G: np.ones(3), "one weight per constraint"),
    (lambda G: np.full(len(G), np.nan), "weights are finite"),
])
def test_malformed_answers_are_told_what_is_missing(page, wrong, says):
    with pytest.raises(PropertyViolated, match=says):
        page["certify_the_svm"](wrong(page["G"]))


def test_which_tokens_can_win():
    """The solution of the exercise, against the solver."""
    X = [[[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [1.0, 1.0]]]
    for token in range(3):
        assert attention_svm(X, [[1.0, 0.0]], [token]).gap < 1e-9
    with pytest.raises(InfeasibleError) as refusal:
        attention_svm(X, [[1.0, 0.0]], [3])
    assert torch.allclose(refusal.value.certificate, torch.tensor([[0, 0.5, 0.5, 0]]).double())
    W = attention_svm(X, [[1.0, 0.0]], [0]).W
    assert torch.allclose(W, torch.tensor([[-0.5, 0.0], [-0.5, 0.0]]).double())
    D = -torch.tensor(X[0][1:]).double()
    for lam in ([0, 0, 0.5], [0.25, 0.25, 0]):
        assert torch.allclose(torch.tensor(lam).double() @ D, W[:, 0])
    for a, b in itertools.product(range(4), repeat=2):
        if a != b and 3 not in (a, b):
            assert attention_svm(X * 2, [[1.0, 0.0], [-1.0, 0.0]], [a, b]).gap < 1e-9
        else:
            with pytest.raises(InfeasibleError):
                attention_svm(X * 2, [[1.0, 0.0], [-1.0, 0.0]], [a, b])


@pytest.mark.parametrize("norm, dual", [("fro", "fro"), ("nuc", 2)])
def test_any_weights_and_any_matrix_bracket_the_value(page, norm, dual):
    """The proposition on norms, with random points of the hull and random matrices."""
    rng = np.random.default_rng(7)
    prob = token_selection(n=3, T=4, d=4, seed=3)
    value = attention_svm(prob.X, prob.z, prob.optimal, norm=norm).value
    D = page["differences"](prob.X, prob.z, prob.optimal).flatten(0, 1)
    points = torch.einsum("bk,kde->bde", torch.tensor(rng.dirichlet(np.full(9, 0.3), 5000)), D)
    assert float(torch.linalg.matrix_norm(points, dual).min()) >= 1 / float(value) * (1 - 1e-9)
    W = torch.tensor(rng.normal(size=(5000, 4, 4)))
    W = W / torch.linalg.matrix_norm(W, norm)[:, None, None]
    assert float(smallest_margin(W, prob.X, prob.z, prob.optimal).max()) <= 1 / float(value) * (1 + 1e-9)


def test_attending_to_oneself_needs_no_dimension():
    """Distinct tokens of one length, many sequences: W = I; a longer token in the same direction spoils it."""
    prob = token_selection(n=40, T=6, d=2, seed=0, self_attention=True)
    assert attention_svm(prob.X, prob.z, [0] * 40).gap < 1e-9
    X = prob.X.clone()
    X[0, 1] = 2 * X[0, 0]
    X[0, 2] = 0.5 * X[0, 0]
    with pytest.raises(InfeasibleError):
        attention_svm(X, X[:, 0], [0] * 40)


def test_minus_the_gradient_is_a_sum_of_differences(page):
    """The form of the gradient that explains descent, against automatic differentiation."""
    prob = token_selection(n=3, T=4, d=4, seed=5)
    W = torch.tensor(np.random.default_rng(1).normal(size=(4, 4)), requires_grad=True)
    s = torch.softmax(torch.einsum("itd,de,ie->it", prob.X, W, prob.z), -1)
    u = (s * prob.scores).sum(-1)
    torch.nn.functional.softplus(-u).mean().backward()
    weights = torch.sigmoid(-u)[:, None] * s * (u[:, None] - prob.scores) / 3
    D = page["differences"](prob.X, prob.z, prob.optimal)
    ours = torch.einsum("it,itde->de", page["rows"](weights, prob.optimal), D)
    assert torch.allclose(ours.detach(), -W.grad)


def test_constraints_and_margin_agree_with_the_package(page):
    """`differences` lists the constraints in the order of `margins`, whatever the selected token."""
    rng = np.random.default_rng(5)
    prob = TokenSelection(rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 2)), [1, -1, 1], rng.normal(size=2))
    W = torch.tensor(rng.normal(size=(2, 2)))
    D = page["differences"](prob.X, prob.z, prob.optimal)
    ours = torch.einsum("itde,de->it", D, W)
    theirs = page["rows"](margins(W, prob.X, prob.z, prob.optimal), prob.optimal)
    assert torch.allclose(ours, theirs)
    assert float(smallest_margin(W, prob.X, prob.z, prob.optimal)) == pytest.approx(float(ours.min()))
