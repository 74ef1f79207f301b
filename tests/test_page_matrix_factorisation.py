"""What the page `book/preconditioning/matrix-factorisation` promises and its build cannot show.

The build runs every cell once. Here the property check of the exercise meets wrong answers, and the page's
theorems on passes, levels and curvature meet problems other than the page's own.
"""

import itertools
import math

import numpy as np
import pages
import pytest
import torch

from attncore import preconditioning as pc
from attncore.course.check import NotDone, PropertyViolated

NEEDED = ("import ", "def softmax_loss", "def orthogonal", "def height", "def index", "def ways_down")


@pytest.fixture(scope="module")
def page():
    """The names that the page defines in the cells this file is about."""
    return pages.names("preconditioning/matrix-factorisation", NEEDED)


WRONG = {
    "one for each dropped value": lambda s, keep, d: len(s) - len(keep),
    "no pairs with kept values": lambda s, keep, d: (len(s) - len(keep)) * (d - len(keep)),
    "kernel of full dimension": lambda s, keep, d: (len(s) - len(keep)) * d,
    "pairs the wrong way": lambda s, keep, d: sum(
        d - len(keep) + sum(s[i] > y for i in keep) for j, y in enumerate(s) if j not in keep
    ),
    "none at all": lambda s, keep, d: 0,
}


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["counts_the_ways_down"](page["answer"](page["index"]))


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_answers_violate_the_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["counts_the_ways_down"](WRONG[wrong])


def test_right_answers_pass(page, capsys):
    def by_pairs(s, keep, d):
        keep = set(keep)
        lost = [j for j in range(len(s)) if j not in keep]
        return sum(s[i] < s[j] for i, j in itertools.product(keep, lost)) + (d - len(keep)) * len(lost)

    page["counts_the_ways_down"](page["ways_down"])
    page["counts_the_ways_down"](by_pairs)
    assert capsys.readouterr().out.count("Holds") == 2


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (2, 2)])
def test_the_pass_between_the_components(page, shape):
    p, d = shape
    s = np.linspace(1, 0.5, d)
    G = page["target"](p, d, s)
    climb = page["over_the_pass"](G)
    assert math.isclose(max(climb), s[-1] ** 2 / 2) and max(climb[0], climb[-1]) < 1e-20
    one = torch.eye(d).double()
    U, Z = pc.spectral_init(one, G)
    dets = [torch.linalg.det(Z @ page["orthogonal"](d, sign)) for sign in (1.0, -1.0)]
    assert dets[0] > 0 > dets[1]
    rng = np.random.default_rng(p)
    for _ in range(50):
        flat = torch.tensor(rng.normal(size=(d, d)))
        flat[:, -1] = flat[:, 0]
        W = torch.tensor(rng.normal(size=(p, d)))
        assert pc.population_loss(W, flat, one, G) >= s[-1] ** 2 / 2


@pytest.mark.parametrize("shape", [(2, 3, 1), (4, 5, 3), (3, 2, 1)])
def test_one_unused_dimension_makes_the_walk_level(page, shape):
    p, d, r = shape
    assert max(page["rotated"](page["target"](p, d, np.linspace(1, 0.5, r)))) < 1e-20


@pytest.mark.parametrize("seed", range(5))
def test_descent_below_the_first_level_reaches_a_minimiser(seed):
    t = pc.gaussian_task(1, [1.0, 0.6, 0.5], d=3, p=4, kappa=10.0, seed=seed)
    A, B = pc.spectral_init(t.Sigma, t.M)
    rng = np.random.default_rng(seed)
    dA, dB = pc.unwhiten(torch.tensor(rng.normal(size=(4, 3))), torch.tensor(rng.normal(size=(3, 3))), t.Sigma)

    def F(e):
        point = A + e * dA, B + e * dB, t.Sigma
        return float(pc.population_loss(*point, t.M) + 0.5 * pc.balance(*point))

    size = next(e for e in np.geomspace(1, 1e-3, 200) if F(e) < 0.5**2 / 2)
    run = pc.descend(A + size * dA, B + size * dB, t.Sigma, t.M, lr=0.05, steps=1500, record=1500)
    assert F(size) > 0.1 and float(run.history.loss[-1]) < 1e-12 and float(run.history.balance[-1]) < 1e-12
