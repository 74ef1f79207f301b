"""What the page `book/icl/gradient` promises and its build cannot show."""

import numpy as np
import pytest
import torch
from pages import names

from attncore import incontext
from attncore.course.check import NotDone, PropertyViolated


@pytest.fixture(scope="module")
def page():
    return names("icl/gradient", ("import ", "def population_loss", "def first_step", "def competitors",
                                  "def force(", "def force_by_theorem"))


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["points_downhill"](page["force"](page["some_a"], 2))


def parts(a, k):
    square = (a * a).sum(1, keepdim=True)
    return square, a[:, k:k + 1], torch.eye(a.shape[1]).to(a)[k]


def uphill(a, k):
    square, own, e = parts(a, k)
    return -a * (square - own - a + e)


def without_the_query(a, k):
    square, own, _ = parts(a, k)
    return a * (square - own - a)


def with_probability(a, k):
    square, own, e = parts(a, k)
    return 0.2 * a * (square - own - a + e)


def by_attention(a, k):
    return parts(a, k)[2] - a


def of_another_query(a, k):
    square, own, e = parts(a, k - 1)
    return a * (square - own - a + e)


@pytest.mark.parametrize("wrong", [uphill, without_the_query, with_probability, by_attention,
                                   of_another_query])
def test_wrong_forces_violate_a_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["points_downhill"](wrong(page["some_a"], 2))


def test_right_forces_pass_however_they_are_computed(page, capsys):
    def jacobian(a, k):
        error = a - torch.eye(a.shape[1]).to(a)[k]
        return -(torch.diag_embed(a) - a[:, :, None] * a[:, None, :]) @ error[:, :, None]

    page["points_downhill"](page["force_by_theorem"](page["some_a"], 2))
    page["points_downhill"](jacobian(page["some_a"], 2)[..., 0])
    page["points_downhill"](jacobian(page["some_a"], 2)[..., 0].numpy())
    assert capsys.readouterr().out.count("Holds") == 3


@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_of_the_definition_on_other_settings(page, seed):
    rng = np.random.default_rng(seed + 100)
    K, N = int(rng.integers(2, 4)), int(rng.integers(1, 5))
    d = K + int(rng.integers(0, 3))
    V = torch.linalg.qr(torch.tensor(rng.normal(size=(d, K))))[0].T
    Q, p = torch.tensor(rng.normal(size=(d, d)) * 2, requires_grad=True), rng.dirichlet(np.ones(K))
    (grad,) = torch.autograd.grad(page["population_loss"](Q, V, p, N), Q)
    q = V @ Q.detach() @ V.T
    g = torch.stack([incontext.column_gradient(q[:, k], p, k, N)[1] for k in range(K)], 1)
    torch.testing.assert_close(-grad, V.T @ g @ V, atol=1e-13, rtol=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_first_step_for_long_prompts(page, seed):
    rng = np.random.default_rng(seed)
    K, N = int(rng.integers(2, 30)), int(rng.integers(1, 2000))
    p = rng.dirichlet(np.ones(K))
    k = int(rng.integers(K))
    g = incontext.column_moments(np.zeros(K), p, k, N).g
    torch.testing.assert_close(g, page["first_step"](p, k, N), atol=1e-14, rtol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_bracket_of_the_floor_on_other_settings(page, seed):
    rng = np.random.default_rng(seed + 7)
    K, N = int(rng.integers(3, 6)), int(rng.integers(2, 8))
    p = rng.dirichlet(np.full(K, 2.0))
    columns = incontext.simulate("exact", N=N, p=p, steps=0).columns
    for k in range(K):
        r = np.delete(p, k) / (1 - p[k])
        c, law = page["competitors"](r, N)
        s = float(columns[k].floor_k) / (0.5 * (1 - p[k]) ** N) - 1
        low, high = float((law / (c > 0).sum(1)).sum()), 1 / N + (1 - 1 / N) * float((r**2).sum())
        assert low - 1e-12 <= s <= high + 1e-12
