"""What the page `book/svm/hierarchy` promises and its build cannot show.

The property check of the exercise meets wrong answers; the squeeze, the case of two tokens and the theorem on words
meet problems other than the page's own.
"""

import math

import numpy as np
import pages
import pytest
import torch
from scipy.special import softmax

from attncore.course.check import NotDone, PropertyViolated
from attncore.data import TokenSelection, token_selection
from attncore.geometry import correlation
from attncore.next_token import cyclic_part, random_next_token
from attncore.stacked import stacked_forward
from attncore.svm import attention_svm, attention_svm_kept, attention_svm_multi


@pytest.fixture(scope="module")
def page():
    return pages.names("svm/hierarchy", ["import ", "pair = ", "def best_angle", "def pick", "def arrows_go_downhill"])


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        page["arrows_go_downhill"](page["heights"](page["arrows"], 8))


@pytest.mark.parametrize("wrong", [
    lambda counts: -counts, lambda counts: counts / 2, lambda counts: counts[:-1], lambda counts: counts * math.nan,
    lambda counts: np.arange(8.0)[::-1],
])
def test_wrong_orders_violate_the_property(page, wrong):
    counts = page["reach"](page["arrows"], 8).sum(1).astype(float)
    with pytest.raises(PropertyViolated):
        page["arrows_go_downhill"](wrong(counts))


def test_every_right_order_passes(page, capsys):
    counts = page["reach"](page["arrows"], 8).sum(1)
    for right in (counts, 5 - 0.5 + 2.0 * counts, np.unique(counts, return_inverse=True)[1]):
        page["arrows_go_downhill"](right)
    assert capsys.readouterr().out.count("Holds") == 3


@pytest.mark.parametrize("keys", ["tokens", "handed"])
@pytest.mark.parametrize("shape", [(1, 2, 2), (2, 5, 3), (4, 3, 6)])
def test_the_squeeze_elsewhere(page, shape, keys):
    n, T, d = shape
    prob, rng = token_selection(n, T, d, seed=17), np.random.default_rng(shape)
    W1, W2 = torch.tensor(rng.normal(size=(2, 500, d, d)) * 10 ** rng.uniform(-2, 1.8, (2, 500, 1, 1)))
    low, high = page["constants"](prob)
    m = torch.minimum(*page["both_margins"](prob, W1, W2, keys))
    gap = page["excess"](prob, stacked_forward(prob, W1, W2, keys))
    assert bool((low * torch.exp(-m).clamp(max=1) <= gap).all()) and bool((gap <= high * torch.exp(-m)).all())


@pytest.mark.parametrize("keys", ["tokens", "handed"])
def test_the_witness_of_feasibility(page, keys):
    """W_1 = v q_1^T, W_2 = v q_2^T have margins that grow in proportion to their size."""
    prob = token_selection(3, 4, 6, seed=5)
    read = page["pick"](prob.X, prob.optimal)
    q1, q2 = (torch.linalg.lstsq(M, prob.y[:, None]).solution[:, 0] for M in (read, prob.z))
    for R in (1e3, 1e4):
        m1, m2 = page["both_margins"](prob, R * torch.outer(prob.v, q1), R * torch.outer(prob.v, q2), keys)
        delta = float((prob.scores.topk(2, -1).values * prob.scores.new_tensor([1, -1])).sum(-1).min())
        assert m1 >= R * delta * (1 - 1e-9) and m2 >= R * delta / 2


def planar(theta, zeta=1.0):
    return TokenSelection([[[1.0, 0.0], [math.cos(theta), math.sin(theta)]]], [[zeta, 0.0]], [1.0], [1.0, 0.0])


def best_turn(page, prob, R):
    """Angle of q at the best pair of size R, keys handed on, by a scan; W_l = D q_l^T / |D|^2 without loss."""
    D, z = prob.X[0, 0] - prob.X[0, 1], prob.z[0] / prob.z[0].norm()
    turn = torch.deg2rad(torch.linspace(-89, 60, 597, dtype=torch.float64))
    part = torch.deg2rad(torch.linspace(0.5, 89.5, 179, dtype=torch.float64))[:, None]
    q = part.sin()[..., None] * torch.stack([turn.cos(), turn.sin()], -1)
    size = R / D.norm()
    W1 = size * torch.einsum("i,abj->abij", D, q)
    W2 = size * (part.cos()[..., None, None] * torch.outer(D, z)).expand_as(W1)
    gap = page["excess"](prob, stacked_forward(prob, W1, W2))
    return math.degrees(turn[gap.amin(0).argmin()])


@pytest.mark.parametrize(("theta", "zeta", "turned"), [
    (math.radians(44), 1.0, False), (math.radians(60), 1.0, True), (math.radians(60), 2.0, False),
    (math.radians(44), 0.5, True),
])
def test_the_angle_of_two_tokens(page, theta, zeta, turned):
    """The exercise's condition tan(theta) > 2 zeta / sqrt(3) decides where the best pair points."""
    assert turned == (math.tan(theta) > 2 * zeta / math.sqrt(3))
    expected = math.degrees(theta) - 90 if turned else 0.0
    assert abs(best_turn(page, planar(theta, zeta), R=300.0) - expected) < 3


def test_an_obtuse_pair_keeps_the_svm():
    x = planar(math.radians(120)).X[0]
    kept = attention_svm_kept([x.tolist()] * 2, x, [0, 1], [False, True]).W
    torch.testing.assert_close(kept, attention_svm(x[None], x[:1], [0]).W)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_any_depth_with_keys_of_its_own(depth):
    """The squeeze that the exercise on depth derives."""
    prob, rng = token_selection(2, 4, 5, seed=8), np.random.default_rng(depth)
    best = prob.scores.topk(2, -1).values
    delta, Delta = (best[:, 0] - best[:, 1]).min(), (best[:, 0] - prob.scores.amin(-1)).max()
    top, own = 2 ** (depth - 1) * best[:, 0], prob.optimal
    c, read = torch.sigmoid(-top).min(), prob.X[torch.arange(2), own]
    other = torch.arange(4) != own[:, None]
    for _ in range(300):
        scale = 10 ** rng.uniform(-1, 1.7, (depth, 1, 1))
        W = torch.tensor(rng.normal(size=(depth, 5, 5)) * scale)
        if rng.random() < 0.5:
            W += torch.tensor(40 * scale) * attention_svm(prob.X, read, own).W
        lack, m = best[:, :1] - prob.scores, math.inf
        for k, M in enumerate(W):
            last = k == depth - 1
            queries = prob.z[:, None] if last else prob.X
            logits = queries @ M.mT @ prob.X.mT
            asked = logits[:, 0] if last else logits[torch.arange(2), own]
            m = min(m, float((asked[torch.arange(2), own][:, None] - asked)[other].min()))
            seen = (torch.softmax(logits, -1) @ lack[..., None])[..., 0]
            lack = seen if last else lack + seen
        gap = float((torch.expm1(lack[:, 0]) * torch.sigmoid(-top)).log1p().mean())
        assert float(c * delta) / 8 * min(1, math.exp(-m)) <= gap * (1 + 1e-9)
        assert gap <= 2 ** (depth - 1) * depth * float(Delta) * 3 * math.exp(-m) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_minimisers_follow_the_graph(seed):
    """The theorem on words: minimisers under a vanishing ridge, which are those in balls as the loss is convex."""
    problem = random_next_token(4, 5, 6, 3, contexts=1, seed=100 + seed)
    X, z, d, at = problem.prob.X, problem.prob.z, 5, torch.arange(6)
    own = (problem.words == problem.labels.unsqueeze(-1)).to(torch.int8).argmax(-1)
    D = ((X[at, own][:, None] - X)[..., None] * z[:, None, None]).flatten(2).numpy()
    graph, part, w, found = attention_svm_multi(X, z, problem.mask), cyclic_part(problem), np.zeros(d * d), []
    for ridge in 10.0 ** -np.arange(1, 11):
        for _ in range(40):
            s = softmax(-(D @ w), -1)
            mean = np.einsum("it,itp->ip", s, D)
            hessian = (np.einsum("it,itp,itq->pq", s, D, D) - mean.T @ mean) / 6 + ridge * np.eye(d * d)
            step = np.linalg.solve(hessian, mean.mean(0) - ridge * w)
            w = w + step * min(1, 2 / np.linalg.norm(step))
        assert np.linalg.norm(step) < 1e-6
        found.append(torch.tensor(w).reshape(d, d))
    off = [1 - float(correlation(W, graph.W)) for W in found]
    away = [float((part.project(W) - part.W).norm()) for W in found]
    assert off[9] < off[5] < off[2] and off[9] < 0.01 and away[9] < 1e-6
