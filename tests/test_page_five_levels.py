"""What the page `book/icl/five-levels` promises and its build cannot show.

The property check of the exercise meets wrong answers; the integral, the two-class formula and the conditional
moments of the token level meet random problems other than the page's own.
"""

import numpy as np
import pages
import pytest
import torch
from scipy.stats import multinomial

from attncore import incontext
from attncore.course.check import NotDone, PropertyViolated
from attncore.incontext.enumeration import count_vectors
from attncore.incontext.token import Prompts, token_step


@pytest.fixture(scope="module")
def page():
    starts = ["import ", "def alpha_by_trapezoid", "def loss_two", "def is_mean_attention", "def by_integral"]
    return pages.names("icl/five-levels", starts)


def mean_field(q, p, N):
    w = p * np.exp(q)
    return w / w.sum()


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["is_mean_attention"](page["mean_attention"])


@pytest.mark.parametrize("wrong", [
    mean_field,
    lambda q, p, N: np.asarray(p, dtype=float),
    lambda q, p, N: (p + (N - 1) * mean_field(q, p, N)) / N,
    lambda q, p, N: np.full(4, 0.25),
])
def test_wrong_attention_violates_a_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["is_mean_attention"](wrong)


def test_an_integral_without_its_derivative_violates_a_property(page):
    with pytest.raises(PropertyViolated):
        page["is_mean_attention"](lambda q, p, N: page["by_integral"](q, p, N) * (N + 1) / N)


def by_tensors(q, p, N):
    return incontext.column_moments(torch.as_tensor(q), torch.as_tensor(p), 0, N).attention


def test_right_answers_pass_however_they_are_found(page, capsys):
    page["is_mean_attention"](page["by_integral"])
    page["is_mean_attention"](by_tensors)
    assert capsys.readouterr().out.count("Holds") == 2


@pytest.mark.parametrize("seed", range(10))
def test_the_solution_is_the_mean_over_all_counts(page, seed):
    rng = np.random.default_rng(100 + seed)
    K, N = int(rng.integers(2, 5)), int(rng.integers(1, 7))
    q, p = rng.normal(size=K), rng.dirichlet(np.ones(K) * 2)
    c = count_vectors(K, N)
    votes = c * np.exp(q)
    mean = multinomial.pmf(c, N, p) @ (votes / votes.sum(1, keepdims=True))
    np.testing.assert_allclose(page["by_integral"](q, p, N), mean, rtol=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_the_integral_of_alpha(page, seed):
    rng = np.random.default_rng(200 + seed)
    K, N = int(rng.integers(2, 5)), int(rng.integers(2, 9))
    q, p, k = rng.normal(size=K) * 2, rng.dirichlet(np.ones(K) * 2), int(rng.integers(K))
    listed = float(incontext.column_gradient(q, p, k, N)[1][k]) / p[k]
    assert page["alpha_by_trapezoid"](q, p, k, N, 0.2) == pytest.approx(listed, rel=1e-10)


@pytest.mark.parametrize("K, N, u", [(2, 3, 0.5), (3, 7, 2.0), (5, 4, 1.3)])
def test_two_classes(page, K, N, u):
    q = torch.full((K,), -u / K, dtype=torch.float64)
    q[0] += u
    listed = float(incontext.column_gradient(q, [1 / K] * K, 0, N)[0])
    assert page["loss_two"](u, K, N) == pytest.approx(listed, rel=1e-12)
    if K > 2:
        assert page["loss_two"](u, K, N, forget=True) < 0.99 * listed


def test_conditional_moments_of_the_token_level():
    """One prompt, many tasks: mean |r|^2 / 2 and variance |r|^4 / 2 of the loss, and the mean direction."""
    rng = np.random.default_rng(7)
    K, d, size = 3, 4, 200_000
    V = torch.eye(d, dtype=torch.float64)[:K]
    Q = torch.tensor(rng.normal(size=(d, d)))
    tokens, query = torch.tensor([0, 0, 1, 2, 1, 0]), 1
    batch = Prompts(tokens.expand(size, 6), torch.full((size,), query), torch.tensor(rng.normal(size=(size, d))))
    losses, direction, _ = token_step(Q, V, batch)
    votes = torch.bincount(tokens, minlength=K) * (V @ Q @ V[query]).exp()
    a = votes / votes.sum()
    r = a - torch.nn.functional.one_hot(torch.tensor(query), K)
    square = float(r @ r)
    assert float(losses.mean()) == pytest.approx(square / 2, rel=0.02)
    assert float(losses.var()) == pytest.approx(square**2 / 2, rel=0.05)
    expected = a * ((a * a).sum() - a[query] - a + torch.nn.functional.one_hot(torch.tensor(query), K))
    torch.testing.assert_close(V @ direction @ V[query], expected, atol=0.005, rtol=0)
