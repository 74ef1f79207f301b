"""What the page `book/svm/why-width-helps` promises and its build cannot show.

The property check of the exercise meets wrong answers; theorems and counter-examples meet problems that the page did
not try; the stored sweep can be stopped and goes on where it was.
"""

import importlib.util
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pages
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import linprog

from attncore.attention import softmax_attention
from attncore.course.check import NotDone, PropertyViolated
from attncore.data import TokenSelection, token_selection
from attncore.svm import Verdict, attention_svm, local_optimality, margins
from attncore.training import train

NEEDED = ("import ", "hollow = ", "data = ", "saddle = ", "def ascent", "traps = ", "def surely", "tight = ",
          "def by_linear_program")


@pytest.fixture(scope="module")
def page():
    """The names that the page defines in the cells this file is about."""
    return pages.names("svm/why-width-helps", NEEDED)


def test_the_stub_is_no_answer(page):
    tight = page["tight"]
    with pytest.raises(NotDone):
        page["ranks_every_sequence"](page["ranking"](tight.X, tight.z, tight.scores))


def least_squares_head(prob):
    return torch.outer(prob.v, torch.linalg.lstsq(prob.z, prob.y[:, None]).solution[:, 0])


@pytest.mark.parametrize("wrong", [
    lambda prob: torch.zeros(3, 3),
    lambda prob: torch.eye(3),
    least_squares_head,
    lambda prob: attention_svm(prob.X, prob.z, prob.optimal).W,
    lambda prob: -page_solution(prob),
])
def test_wrong_directions_violate_a_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["ranks_every_sequence"](wrong(page["tight"]))


def page_solution(prob):
    """A ranking direction found without the page: the attention SVM of all ordered pairs, by a perceptron."""
    order = prob.scores.argsort(-1, descending=True)
    x = prob.X.take_along_dim(order[..., None], 1)
    rows = torch.einsum("itd,ie->itde", x[:, :-1] - x[:, 1:], prob.z).flatten(0, 1)
    U = torch.zeros_like(rows[0])
    for _ in range(100_000):
        gaps = (rows * U).sum((1, 2))
        if gaps.min() > 0:
            return U
        U += rows[gaps.argmin()]
    raise AssertionError("no ranking direction found")


@pytest.mark.parametrize("wrong, says", [
    (torch.ones(2, 2), "3 by 3"), (torch.full((3, 3), torch.nan), "entries are finite"),
])
def test_malformed_answers_are_told_what_is_missing(page, wrong, says):
    with pytest.raises(PropertyViolated, match=says):
        page["ranks_every_sequence"](wrong)


def test_right_answers_pass_at_any_scale(page, capsys):
    tight = page["tight"]
    U = torch.as_tensor(page["by_linear_program"](tight.X, tight.z, tight.scores))
    for right in (U, 1e-3 * U, page_solution(tight)):
        page["ranks_every_sequence"](right)
    assert capsys.readouterr().out.count("Holds") == 3


def test_no_linear_function_separates_the_labels_of_the_exercise(page):
    tight = page["tight"]
    A = -(tight.z * tight.y[:, None]).numpy()
    assert linprog(np.zeros(3), A_ub=A, b_ub=-np.ones(6), bounds=(None, None)).status == 2


@pytest.mark.parametrize("n, D", [(1, 1), (3, 2), (4, 2), (5, 3), (4, 6), (6, 4)])
def test_covers_count_by_trying_all_signs(page, n, D):
    z = np.random.default_rng((n, D)).normal(size=(n, D))
    possible = sum(
        linprog(np.zeros(D), A_ub=-z * np.array(y)[:, None], b_ub=-np.ones(n), bounds=(None, None)).status == 0
        for y in itertools.product((-1, 1), repeat=n))
    assert possible == page["pi"](n, D) * 2**n


def planar(prob, p):
    W = torch.stack([p, torch.zeros_like(p)], -1)
    u = (softmax_attention(prob.X, W, prob.z) * prob.scores).sum(-1)
    return torch.nn.functional.softplus(-u).mean()


def test_the_saddle_and_the_local_minimum(page):
    """Both counter-examples, by automatic differentiation."""
    saddle, hollow = page["saddle"], page["hollow"]
    zero = torch.zeros(2, dtype=torch.float64)
    grad, hess = (f(lambda p: planar(saddle, p), zero) for f in
                  (torch.autograd.functional.jacobian, torch.autograd.functional.hessian))
    assert grad.norm() < 1e-14
    torch.testing.assert_close(hess, torch.diag(zero.new_tensor([76 / 9, -1])))
    p = torch.tensor([0.89787837994422457346, 0.73575130209733529189], dtype=torch.float64)
    grad, hess = (f(lambda p: planar(hollow, p), p) for f in
                  (torch.autograd.functional.jacobian, torch.autograd.functional.hessian))
    assert grad.norm() < 1e-14 and torch.linalg.eigvalsh(hess).min() > 0.009
    for prob in (saddle, hollow):
        assert attention_svm(prob.X, prob.z, prob.optimal).gap < 1e-9


def test_the_double_sum_is_the_directional_derivative(page):
    prob = token_selection(3, 5, 4, seed=9)
    rng = np.random.default_rng(0)
    U, W = (torch.tensor(rng.normal(size=(4, 4))) for _ in range(2))

    def loss(W):
        u = (softmax_attention(prob.X, W, prob.z) * prob.scores).sum(-1)
        return torch.nn.functional.softplus(-u).mean()

    slope = torch.autograd.functional.jvp(loss, W, U)[1]
    batch = token_selection(3, 5, 4, seed=9, batch=1)
    torch.testing.assert_close(page["ascent"](batch, U, W)[0], -slope)


def triangles(count, seed, head=None):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * math.pi, (count, 1, 3))
    X = np.stack([np.cos(angle), np.sin(angle)], -1)
    angle = rng.uniform(0, 2 * math.pi, count)
    return TokenSelection(X, np.broadcast_to([[1.0, 0.0]], (count, 1, 2)), np.ones((count, 1)),
                          np.stack([np.cos(angle), np.sin(angle)], -1))


def test_a_trap_is_an_obtuse_angle_and_one_problem_in_eight_has_one():
    prob = triangles(4000, seed=1)
    found = torch.stack([local_optimality(prob.X, prob.z, prob.scores, torch.full((4000, 1), a)).verdict
                         for a in range(3)], -1) == Verdict.LOCAL
    x, score, said = prob.X[:, 0], prob.scores[:, 0], torch.zeros(4000, 3, dtype=torch.bool)
    for a, b, c in itertools.permutations(range(3)):
        obtuse = ((x[:, a] - x[:, b]) * (x[:, c] - x[:, b])).sum(-1) < 0
        said[:, a] |= obtuse & (score[:, b] < score[:, a]) & (score[:, a] < score[:, c])
    assert torch.equal(said, found)
    share = float(found.any(-1).double().mean())
    assert abs(share - 1 / 8) < 4 * math.sqrt(7 / 64 / 4000)


def test_near_the_ideal_there_is_no_trap_and_every_token_supports(page):
    prob = page["ideal"](2, 4, 6, 30, tokens=0.012, queries=0.012, seed=21)
    eps, theta = page["coherence"](prob, -1 / 3)
    holds = 3 * (3 * eps + 4 * theta) < 1 / 3
    assert holds.double().mean() > 0.5
    for a in itertools.product(range(4), repeat=2):
        chosen = torch.tensor(a).expand(30, 2)
        W = attention_svm(prob.X, prob.z, chosen).W
        gaps = margins(W, prob.X, prob.z, chosen)
        own = torch.nn.functional.one_hot(chosen, 4).bool()
        assert bool(((gaps - 1).abs() < 1e-9)[~own & holds[:, None, None]].all())
        verdict = local_optimality(prob.X, prob.z, prob.scores, chosen).verdict
        assert bool((verdict[holds] != Verdict.LOCAL).all())


@pytest.mark.parametrize("options", [
    {"lr": 0.1}, {"lr": 0.02}, {"lr": 0.1, "normalized": False}, {"lr": 0.1, "loss": "correlation"},
])
def test_the_best_token_is_never_overtaken(page, options):
    """Other shapes, losses and step rules than on the page."""
    prob = page["ideal"](2, 4, 5, 200, tokens=2e-3, queries=1e-3, seed=31)
    sure = page["surely"](prob, -1 / 3, 0.1)
    assert sure.double().mean() > 0.3
    run = train(prob, steps=200, record=1, **options)
    assert run.W.diff(dim=0).flatten(2).norm(dim=-1).max() <= 0.1 + 1e-12
    h = torch.einsum("bntd,kbde,bne->kbnt", prob.X, run.W[1:], prob.z)
    assert bool((h.argmax(-1) == prob.optimal).all(-1).all(0)[sure].all())


def test_far_from_the_ideal_it_is_overtaken(page):
    """The condition is not empty: without it the best token does lose the lead."""
    prob = token_selection(4, 6, 8, seed=5, batch=50)
    assert not bool(page["surely"](prob, 0.0, 0.1).any())
    assert not bool(page["never_overtaken"](prob, steps=20).all())


def test_the_sweep_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    path = Path(__file__).parents[1] / "tools" / "width_sweep.py"
    spec = importlib.util.spec_from_file_location("width_sweep", path)
    sweep = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sweep)
    monkeypatch.setattr(sweep, "TARGET", tmp_path / "width.json")
    monkeypatch.setattr(sweep, "PARTIAL", tmp_path / "partial.json")
    calls = []

    def compute(n, T, d):
        calls.append(d)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return {"seen": [n, T, d]}

    settings = {"n": [1], "T": [2], "d": [3, 4], "draws": 5}
    monkeypatch.setattr(sweep, "SWEEPS", {"feasible": (settings, compute)})
    with pytest.raises(KeyboardInterrupt):
        sweep.main()
    assert not sweep.TARGET.exists()
    sweep.main()
    assert calls == [3, 4, 4] and not sweep.PARTIAL.exists()
    cells = json.loads(sweep.TARGET.read_text("utf8"))["feasible"]["cells"]
    assert [c["seen"] for c in cells] == [[1, 2, 3], [1, 2, 4]]
    assert capsys.readouterr().out.count("feasible") == 2


@pytest.mark.parametrize("side, choice, loss", [(1, 0, math.log1p(math.exp(-2))), (-1, 1, math.log1p(math.exp(-1)))])
def test_descent_from_beside_the_saddle_goes_where_the_solution_says(page, side, choice, loss):
    saddle = page["saddle"]
    start = torch.zeros(2, 2, dtype=torch.float64)
    start[1, 0] = 0.1 * side
    run = train(saddle, steps=5000, lr=0.1, normalized=False, init=start, record=5000)
    assert run.attention.argmax(-1).tolist() == [choice, choice]
    assert loss < run.loss[-1] < loss + 0.02
    assert abs(run.W[-1, 0, 0]) < 1e-9 and side * run.W[-1, 1, 0] > 1
    second = local_optimality(saddle.X, saddle.z, saddle.scores, torch.tensor([1, 1]))
    assert second.verdict == Verdict.LOCAL and second.support.tolist() == [[False, False, True]] * 2


def flow_ends_at(gram, scores, logits, time):
    """The token with most attention after gradient flow of one sequence, whose tokens have this Gram matrix."""
    def velocity(_, h):
        s = np.exp(h - h.max())
        s /= s.sum()
        u = s @ scores
        return gram @ (s * (scores - u)) / (1 + np.exp(u))
    return solve_ivp(velocity, (0, time), logits, method="LSODA", rtol=1e-8, atol=1e-10).y[:, -1].argmax()


def test_in_a_simplex_the_flow_leaves_every_wrong_token_and_behind_an_obtuse_angle_it_does_not():
    scores = np.array([1.0, 0.8, 0.0, -1.0])
    for logits in itertools.permutations([-1.0, 0.0, 1.0, 3.0]):
        assert flow_ends_at(np.eye(4), scores, logits, 1e9) == 0
    assert flow_ends_at(np.eye(4), scores, [-1, 3, 1, 1], 1e2) == 1         # it takes long
    line = np.array([[-1.0, 0.2], [1.0, 0.0], [0.0, 0.0]])                 # the best hides behind the worst
    assert flow_ends_at(line @ line.T, np.array([1.0, 0.8, 0.0]), line @ [5.0, 0.0], 1e9) == 1
