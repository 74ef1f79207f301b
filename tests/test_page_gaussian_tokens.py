"""What the page `book/preconditioning/gaussian-tokens` promises and its build cannot show.

The build runs every cell once. Here the property check of the exercise meets wrong answers, and the page's
constant and its rule for the scale meet spectra other than the page's own.
"""

import math

import numpy as np
import pages
import pytest

from attncore import preconditioning as pc
from attncore.course.check import NotDone, PropertyViolated

NEEDED = ("import ", "def constant", "def with_tau", "def effective", "def by_squares")


@pytest.fixture(scope="module")
def page():
    """The names that the page defines in the cells this file is about."""
    return pages.names("preconditioning/gaussian-tokens", NEEDED)


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def perplexity(logits):
    w = softmax(logits)
    return np.exp(-(w * np.log(np.maximum(w, 1e-300))).sum(-1))


WRONG = {
    "number of tokens": lambda logits: np.full(len(logits), float(logits.shape[-1])),
    "perplexity": perplexity,
    "inverse of the largest weight": lambda logits: 1 / softmax(logits).max(-1),
    "sum of squares": lambda logits: (softmax(logits) ** 2).sum(-1),
    "not shifted": lambda logits: np.exp(logits).sum(-1) ** 2 / np.exp(2 * logits).sum(-1),
    "one number for all": lambda logits: float(np.mean(1 / (softmax(logits) ** 2).sum(-1))),
}


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["measures_the_effective_sample"](page["answer"](page["effective"]))


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_wrong_answers_violate_a_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["measures_the_effective_sample"](WRONG[wrong])


def test_right_answers_pass(page, capsys):
    check = page["measures_the_effective_sample"]
    check(page["by_squares"])
    check(lambda logits: 1 / (softmax(logits) ** 2).sum(-1))
    assert capsys.readouterr().out.count("Holds") == 2


@pytest.mark.parametrize("seed", range(10))
def test_the_constant_is_that_of_the_package(page, seed):
    rng = np.random.default_rng(seed)
    s = np.sort(rng.uniform(0.02, 0.48, rng.integers(1, 5)))[::-1]
    d, p = len(s) + rng.integers(0, 3, 2)
    task = pc.gaussian_task(1, s, d=int(d), p=int(p), kappa=10.0, seed=seed)
    for tau in (1.0, page["rule"](s)):
        A, B = pc.spectral_init(task.Sigma, task.M / tau)
        expected = float(pc.mean_attention_mse(tau * A, B, task.Sigma))
        assert math.isclose(page["with_tau"](s, tau), expected, rel_tol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_the_rule_is_near_the_best_scale(page, seed):
    rng = np.random.default_rng([seed, 1])
    s = np.exp(rng.uniform(0, 2) * rng.normal(size=rng.integers(1, 40)))
    assert page["with_tau"](s, page["rule"](s)) < 1.5 * page["best"](s)[1]
    assert math.isinf(page["with_tau"](s, 2 * s.max()))


@pytest.mark.parametrize("k", [1, 2, 5, 20])
def test_the_best_scale_of_equal_values_solves_its_equation(page, k):
    q = 1 / page["best"](np.ones(k))[0]
    assert abs((k + 2) * q * (1 - q) - (1 - 2 * q)) < 0.1
    assert 0.97 / (k + 4) < q < 1.03 / (k + 3)
