"""Two stacked layers: the model written out, the gradient against autograd and more digits, and training."""

import math

import mpmath
import numpy as np
import pytest
import torch

from attncore.data import TokenSelection, token_selection
from attncore.stacked import stacked_forward, stacked_gradient, train_stacked

KEYS = ("handed", "tokens")


def weights(seed, *shape, scale=1.0):
    rng = np.random.default_rng(seed)
    return [torch.tensor(scale * rng.normal(size=shape)) for _ in range(2)]


def written_out(prob, W1, W2, keys):
    """y_i f_i of a single problem, token by token."""
    out = []
    for X, z, y in zip(prob.X, prob.z, prob.y, strict=True):
        handed = torch.stack([x + torch.softmax(X @ W1 @ x, 0) @ X for x in X])
        s = torch.softmax((handed if keys == "handed" else X) @ W2 @ z, 0)
        out.append(y * (s @ handed) @ prob.v)
    return torch.stack(out)


@pytest.mark.parametrize("keys", KEYS)
def test_the_model(keys):
    prob = token_selection(3, 4, 5, seed=1)
    W1, W2 = weights(0, 5, 5, scale=3)
    state = stacked_forward(prob, W1, W2, keys)
    torch.testing.assert_close(state.u, written_out(prob, W1, W2, keys))
    routes = state.second.unsqueeze(-1) * state.first
    scores = prob.scores.unsqueeze(-1) + prob.scores.unsqueeze(-2)
    torch.testing.assert_close(state.u, (routes * scores).sum((-2, -1)))
    assert state.read.shape == (3,) and state.chosen.shape == (3, 4)


@pytest.mark.parametrize("loss", ["logistic", "exponential", "correlation"])
@pytest.mark.parametrize("keys", KEYS)
def test_the_gradient_is_that_of_autograd(keys, loss):
    prob = token_selection(3, 4, 5, seed=2)
    W1, W2 = (W.requires_grad_() for W in weights(1, 5, 5, scale=2))
    u = written_out(prob, W1, W2, keys)
    value = {"logistic": lambda u: torch.nn.functional.softplus(-u), "exponential": lambda u: torch.exp(-u),
             "correlation": lambda u: -u}[loss]
    expected = torch.autograd.grad(value(u).mean(), (W1, W2))
    found = stacked_gradient(prob, W1.detach(), W2.detach(), keys, loss)
    for G, E in zip(found, expected, strict=True):
        torch.testing.assert_close(G, E, rtol=1e-10, atol=1e-13)


def in_many_digits(prob, W1, W2):
    """Gradient of the loss of one sequence of two tokens, keys handed on, by differences in 150 digits."""
    with mpmath.workdps(150):
        X, (z,), v = prob.X[0].tolist(), prob.z.tolist(), prob.v.tolist()

        def loss(entries):
            A, B = mpmath.matrix(2, 2), mpmath.matrix(2, 2)
            for k in range(4):
                A[k // 2, k % 2], B[k // 2, k % 2] = entries[k], entries[4 + k]

            def shares(rows, M, query):
                logits = [mpmath.fdot(row, M * mpmath.matrix(query)) for row in rows]
                e = [mpmath.exp(h - max(logits)) for h in logits]
                return [w / sum(e) for w in e]

            handed = []
            for x in X:
                s = shares(X, A, x)
                handed.append([x[j] + s[0] * X[0][j] + s[1] * X[1][j] for j in range(2)])
            s = shares(handed, B, z)
            f = sum(s[t] * mpmath.fdot(handed[t], v) for t in range(2))
            return mpmath.log(1 + mpmath.exp(-f))

        start = [mpmath.mpf(w) for W in (W1, W2) for w in W.flatten().tolist()]
        h = mpmath.mpf(10) ** -50
        grad = []
        for k in range(8):
            up, down = start.copy(), start.copy()
            up[k], down[k] = up[k] + h, down[k] - h
            grad.append((loss(up) - loss(down)) / (2 * h))
        size = mpmath.sqrt(sum(g * g for g in grad))
        return [float(g / size) for g in grad], float(mpmath.log10(size))


def test_saturation_does_not_spoil_the_gradient():
    prob = TokenSelection([[[1.0, 0.0], [5 / 13, 12 / 13]]], [[1.0, 0.0]], [1.0], [1.0, 0.0])
    run = train_stacked(prob, steps=1500, record=1500)
    W1, W2 = run.W1[-1], run.W2[-1]
    found = torch.cat([G.flatten() for G in stacked_gradient(prob, W1, W2)])
    expected, size = in_many_digits(prob, W1, W2)
    assert size < -20
    np.testing.assert_allclose(found / found.norm(), expected, atol=1e-9)


@pytest.mark.parametrize("keys", KEYS)
def test_a_step_is_a_step_and_batches_are_independent(keys):
    prob = token_selection(3, 4, 5, seed=4, batch=(2, 2))
    run = train_stacked(prob, steps=30, lr=0.2, keys=keys, record=[0, 1, 2])
    length = (run.W1.diff(dim=0)[:2].square().sum((-2, -1)) + run.W2.diff(dim=0)[:2].square().sum((-2, -1))).sqrt()
    torch.testing.assert_close(length, torch.full_like(length, 0.2))
    single = train_stacked(prob[1, 0], steps=30, lr=0.2, keys=keys)
    torch.testing.assert_close(single.W1[-1], run.W1[-1, 1, 0])
    torch.testing.assert_close(single.final.handed, run.final.handed[1, 0])
    go_on = train_stacked(prob, steps=28, lr=0.2, keys=keys, init=(run.W1[2], run.W2[2]))
    torch.testing.assert_close(go_on.W2[-1], run.W2[-1])
    assert run.steps.tolist() == [0, 1, 2, 30] and run.loss.shape == (4, 2, 2)


def test_keys_matter():
    prob = token_selection(3, 4, 5, seed=4)
    ends = [train_stacked(prob, steps=50, keys=keys).W1[-1] for keys in KEYS]
    assert (ends[0] - ends[1]).norm() > 0.1


def test_nothing_to_learn_gives_no_step():
    prob = TokenSelection(np.ones((1, 3, 2)), [[1.0, 0.0]], [1.0], [1.0, 0.0])
    run = train_stacked(prob, steps=5)
    assert run.W1.abs().max() < 1e-12 and math.isfinite(float(run.loss[-1]))


@pytest.mark.parametrize(("error", "words", "change"), [
    (TypeError, "prob must be", {"prob": 3}),
    (ValueError, "keys must be one of", {"keys": "values"}),
    (ValueError, "lr must be greater", {"lr": 0.0}),
    (ValueError, "W1 must have shape", {"init": (np.eye(3), np.eye(5))}),
    (ValueError, "leading axes", {"init": (np.zeros((3, 5, 5)), np.zeros((2, 5, 5)))}),
])
def test_bad_input(error, words, change):
    with pytest.raises(error, match=words):
        train_stacked(**{"prob": token_selection(2, 3, 5), "steps": 2, **change})
