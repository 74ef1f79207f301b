"""What the page `book/icl/four-phases` promises and its build cannot show.

The property check of the exercise meets wrong answers; the threshold, the balance of forces and the limit of training
meet settings other than the page's own.
"""

import math

import numpy as np
import pages
import pytest
import torch

from attncore import incontext, phases
from attncore.course.check import NotDone, PropertyViolated


@pytest.fixture(scope="module")
def page():
    return pages.names("icl/four-phases", ["import ", "def late_column", "def by_the_theorem"])


def answer(page, function):
    return [function(*case) for case in page["late_cases"]]


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        answer(page, page["late_column"])


def equal_competitors(p, k, time):
    K = len(p)
    u = 0.5 * math.log(2 * time * K**2 * np.delete(p, k).mean() ** 2 / p[k])
    q = np.full(K, -u / K)
    q[k] = (K - 1) / K * u
    return q


def wrong_mean(p, k, time):
    K, log_g = len(p), math.log(np.delete(p, k).mean())
    u = 0.5 * math.log(2 * time * K**2 / p[k]) + log_g
    q = -u / K + log_g - np.log(p)
    q[k] = (K - 1) / K * u
    return q


def too_late(page):
    return lambda p, k, time: page["by_the_theorem"](p, k, 2 * time)


def test_wrong_columns_violate_the_property(page):
    for wrong in (equal_competitors, wrong_mean, too_late(page), lambda p, k, time: np.full(len(p), np.nan),
                  lambda p, k, time: page["by_the_theorem"](p, k, time) + 1):
        with pytest.raises(PropertyViolated):
            page["late_and_level"](answer(page, wrong))
    with pytest.raises(PropertyViolated):
        page["late_and_level"](answer(page, page["by_the_theorem"])[:-1])


def test_right_columns_pass_however_they_are_found(page, capsys):
    page["late_and_level"](answer(page, page["by_the_theorem"]))

    def by_solving(p, k, time):
        K = len(p)
        x = (K - 1) / (4 * K * p[k] * time)
        # level competitors: loss = (1 - a)^2 K / (2 (K - 1))
        a = 1 - math.sqrt(2 * x * (K - 1) / K)
        attention = np.full(K, (1 - a) / (K - 1))
        attention[k] = a
        q = np.log(attention / p)
        return q - q.mean()

    page["late_and_level"](answer(page, by_solving))
    assert capsys.readouterr().out.count("Holds") == 2


@pytest.mark.parametrize("seed", range(10))
def test_balance_of_forces_in_the_mean_field(seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(3, 9))
    a = rng.dirichlet(np.ones(K))
    S = (a[1:] ** 2).sum()                                  # the query is feature 0, its rival feature 1
    alpha = a[0] * (S + (1 - a[0]) ** 2)
    beta = a[1] * (S - a[1] - a[0] * (1 - a[0]))
    R = (a[2:] ** 2).sum()
    claimed = (1 - a[0] - a[1]) * (a[0] * (1 - a[0]) - a[1] ** 2) + (a[0] + a[1]) * R
    assert alpha + beta == pytest.approx(claimed, abs=1e-14)


@pytest.mark.parametrize("K", [3, 7, 30, 500])
def test_competition_begins_at_one_over_root_k(K):
    p1 = np.array([0.99, 1.01]) / math.sqrt(K)
    under = incontext.flow("mean_field", [0.0, 1.0], K=K, p1=p1).columns["under"]
    ratio = (under.beta1.abs() / under.alpha)[0].numpy()
    assert ratio[0] < 1 < ratio[1]
    assert ratio == pytest.approx(K * (K - 1) * p1**2 / (K - 2 + K * p1**2), rel=1e-12)


def test_the_first_boundary_comes_before_the_second():
    K = torch.tensor([3, 5, 12, 80])
    traj = incontext.flow("mean_field", np.linspace(0, 5, 2001), K=K, p1=[0.8, 0.7, 0.4, 0.6],
                          eta=K.double() ** 2 * 2)
    times = phases.detect(traj).times["under"]
    assert bool((times["T_I"] > 0).all()) and bool((times["T_I"] < times["T_II"]).all())


def test_every_feature_has_its_own_rate_and_competitors_end_level():
    p = np.array([0.45, 0.3, 0.15, 0.1])
    traj = incontext.flow("mean_field", [1e8, 1e14], p=p)
    for k, column in traj.columns.items():
        assert float(column.excess[-1]) * 1e14 * 16 * p[k] / 3 == pytest.approx(1, abs=0.01)
        level = (column.q + torch.tensor(p).log())[:, [n for n in range(4) if n != k]].std(-1)
        assert level[1] < 0.2 * level[0]
