"""What the page `book/icl/two-phases` promises and its build cannot show.

The property check of the exercise meets wrong answers; the scalar reduction, the lemma behind the floor and the
identities behind the rate meet random problems other than the page's own.
"""

import math

import numpy as np
import pages
import pytest
import torch

from attncore import incontext
from attncore.course.check import NotDone, PropertyViolated


@pytest.fixture(scope="module")
def page():
    return pages.names("icl/two-phases", ["import ", "def scalar", "def excess_is_eps", "def by_closed_form"])


def answer(page, function):
    return [function(*case) for case in page["cases"]]


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        answer(page, page["time_to"])


@pytest.mark.parametrize("wrong", [
    lambda K, eps: (K - 1) / (4 * eps),
    lambda K, eps: K * math.log(K / math.sqrt(eps)) / eps,
    lambda K, eps: (K - 1) / (4 * eps) * (1 + 4 * math.sqrt(2 * eps * (K - 1) / K)) + K**2,
    lambda K, eps: float("inf"),
])
def test_wrong_times_violate_the_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["excess_is_eps"](answer(page, wrong))


def test_too_few_times_violate_the_property(page):
    with pytest.raises(PropertyViolated):
        page["excess_is_eps"](answer(page, page["by_closed_form"])[:-1])


def test_right_times_pass_however_they_are_found(page, capsys):
    page["excess_is_eps"](answer(page, page["by_closed_form"]))

    def by_the_package(K, eps):
        return incontext.closed_form(K, 1 / K, math.sqrt(K / (2 * (K - 1) * eps)) - 1)

    page["excess_is_eps"](answer(page, by_the_package))
    assert capsys.readouterr().out.count("Holds") == 2


@pytest.mark.parametrize("seed", range(12))
def test_one_number_is_the_state(page, seed):
    rng = np.random.default_rng(seed)
    K, N = int(rng.integers(2, 6)), int(rng.integers(2, 8))
    p, A = rng.uniform(0.02, 0.95), rng.normal() * 2
    probabilities = torch.full((K,), (1 - p) / (K - 1), dtype=torch.float64)
    probabilities[0] = p
    q = torch.full_like(probabilities, -A / (K - 1))
    q[0] = A
    loss, g = incontext.column_gradient(q, probabilities, 0, N)
    torch.testing.assert_close(torch.stack(page["scalar"](A * K / (K - 1), p, K, N)), torch.stack([loss, g[0]]))


@pytest.mark.parametrize("seed", range(20))
def test_equal_weights_spread_best(seed):
    rng = np.random.default_rng(seed)
    J, N = int(rng.integers(1, 5)), int(rng.integers(1, 8))
    p = torch.full((J + 1,), 1 / J, dtype=torch.float64)
    p[0] = 0
    q = torch.tensor(rng.normal(size=(50, J + 1)) * 10 ** rng.uniform(-3, 1, (50, 1)))
    squares = 2 * incontext.column_gradient(q, p, 0, N)[0] - 1
    bound = 1 / N + (1 - 1 / N) / J
    assert bool((squares >= bound * (1 - 1e-13)).all())
    equal = 2 * incontext.column_gradient(torch.zeros(J + 1), p, 0, N)[0] - 1
    assert float(equal) == pytest.approx(bound, rel=1e-13)


@pytest.mark.parametrize("K, N, eta", [(2, 2, 1.0), (3, 5, 50.0), (6, 20, 20.0), (10, 4, 7.0)])
def test_no_step_is_too_large_and_the_law_is_reached(K, N, eta):
    steps = 40_000
    run = incontext.simulate("exact", K=K, N=N, eta=eta, steps=steps, record=steps)
    assert run.loss_rises == -1
    scaled = eta * steps * (run.loss[-1] - run.floor) * 4 / (K - 1)
    assert float(scaled) == pytest.approx(1, abs=0.05)
