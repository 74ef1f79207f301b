"""What the page `book/svm/attention-chooses-tokens` promises and its build cannot show.

The build runs every cell once. Here the property check of the exercise meets wrong answers, and the
constants of the squeeze meet random problems other than the page's own.
"""

import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

from attncore.course.check import NotDone, PropertyViolated
from attncore.data import TokenSelection

PAGE = Path(__file__).parents[1] / "book" / "svm" / "attention-chooses-tokens.md"
NEEDED = ("import ", "plane = ", "def differences", "def bracket", "def excess", "def dual_weights",
          "def projected_gradient")


@pytest.fixture(scope="module")
def page():
    """The names that the page defines in the cells this file is about."""
    matplotlib.use("agg")
    cells = re.findall(r"```\{code-cell\} ipython3\n(.*?)\n```", PAGE.read_text("utf8"), re.S)
    names: dict = {}
    with matplotlib.rc_context():
        for start in NEEDED:
            cell = next(c for c in cells if any(line.startswith(start) for line in c.splitlines()))
            code = re.sub(r"\A(---\n.*?\n---\n|:tags:[^\n]*\n)", "", cell, flags=re.S)
            exec(compile(code, f"{PAGE.name}: {start}", "exec"), names)
    return names


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


@pytest.mark.parametrize("seed", range(40))
def test_the_squeeze_on_random_problems(page, seed):
    rng = np.random.default_rng(seed)
    n, T, d = rng.integers(1, 5), rng.integers(2, 7), rng.integers(1, 6)
    prob = TokenSelection(rng.normal(size=(n, T, d)), rng.normal(size=(n, d)),
                          rng.choice([-1, 1], n), rng.normal(size=d))
    W = torch.tensor(rng.normal(size=(500, d, d)) * 10 ** rng.uniform(-1, 1, (500, 1, 1)))
    low, high = page["constants"](prob)
    m, gap = page["margin"](prob, W), page["excess"](prob, W)
    slack = 1 + 1e-12
    assert bool((low * torch.exp(-m).clamp(max=1) <= gap * slack).all())
    assert bool((gap <= high * torch.exp(-m) * slack).all())
