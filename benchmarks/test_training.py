"""Training an ensemble: 100 runs of 2000 steps at n = 6, T = 8, d = 10 in float64, all on one core.

The opponent is the published procedure, one run at a time: a module, a backward pass, a normalised step. The
floor is the same descent as a compiled loop, problem by problem, everything in the first-level cache.
"""

import math

import numba
import numpy as np
import pytest
import torch
from fresh_process import run_fresh

from attncore.attention import SelectionAttention
from attncore.data import token_selection
from attncore.training import train
from attncore.weights import gaussian_start

RUNS, STEPS, SHORT = 100, 2000, 200


@pytest.fixture(scope="module")
def ensemble():
    return token_selection(6, 8, 10, batch=RUNS)


def one_at_a_time(prob, parametrization, start, steps):
    """The published procedure on one problem."""
    model = SelectionAttention(prob.v, parametrization, start)
    v = prob.v.unsqueeze(-1)
    for _ in range(steps):
        query = prob.z @ (model.W.mT if parametrization == "W" else model.Q @ model.K.mT)
        s = torch.softmax((prob.X @ query.unsqueeze(-1)).squeeze(-1), -1)
        f = ((s.unsqueeze(-2) @ prob.X).squeeze(-2) @ v).squeeze(-1)
        loss = torch.nn.functional.softplus(-prob.y * f).mean()
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.1 * weight.grad / (weight.grad.norm() + 2.22e-16)


@numba.njit(error_model="numpy")
def logit_gradient(x, p, u, y, n, r, pulled):
    """The exact gradient of one sequence, pulled back to ``sum_t g_t x_t``; `r` is scratch."""
    T, d = x.shape
    top = 0
    for t in range(T):
        r[t] = 0.0
        for c in range(d):
            r[t] += x[t, c] * u[c]
        if r[t] > r[top]:
            top = t
    largest, Z, e = r[top], 0.0, 0.0
    for t in range(T):
        r[t] = math.exp(r[t] - largest)
        Z += r[t]
        e += r[t] * (p[t] - p[top])
    e /= Z
    factor = -y / (n * Z * (1 + math.exp(y * (p[top] + e))))
    pulled[:] = 0.0
    for t in range(T):
        g = factor * r[t] * (p[t] - p[top] - e)
        for c in range(d):
            pulled[c] += g * x[t, c]


@numba.njit(error_model="numpy")
def compiled_loop(X, z, y, P, K, Q, factored, steps, lr):
    """Joint normalised descent on ``W = K`` (not `factored`) or ``W = K Q^T``, problem by problem."""
    B, n, T, d = X.shape
    m = K.shape[2]
    gK, gQ, u, q, pulled, r, b = (np.empty((d, m)), np.empty((d, m)), np.empty(d), np.empty(m), np.empty(d),
                                  np.empty(T), np.empty(m))
    for k in range(B):
        for _ in range(steps):
            gK[:], gQ[:] = 0.0, 0.0
            for i in range(n):
                q[:] = 0.0
                if factored:
                    for c in range(d):
                        for a in range(m):
                            q[a] += Q[k, c, a] * z[k, i, c]
                else:
                    q[:] = z[k, i]
                for c in range(d):
                    u[c] = 0.0
                    for a in range(m):
                        u[c] += K[k, c, a] * q[a]
                logit_gradient(X[k, i], P[k, i], u, y[k, i], n, r, pulled)
                for c in range(d):
                    for a in range(m):
                        gK[c, a] += pulled[c] * q[a]
                if factored:
                    b[:] = 0.0
                    for c in range(d):
                        for a in range(m):
                            b[a] += K[k, c, a] * pulled[c]
                    for c in range(d):
                        for a in range(m):
                            gQ[c, a] += z[k, i, c] * b[a]
            square = 0.0
            for c in range(d):
                for a in range(m):
                    square += gK[c, a] ** 2 + gQ[c, a] ** 2
            rate = lr / math.sqrt(square)
            for c in range(d):
                for a in range(m):
                    K[k, c, a] -= rate * gK[c, a]
                    if factored:
                        Q[k, c, a] -= rate * gQ[c, a]


def compiled(prob, parametrization, start, steps):
    K, Q = (M.numpy().copy() for M in start)
    factored, P = parametrization == "KQ", torch.einsum("bntd,bd->bnt", prob.X, prob.v)
    compiled_loop(prob.X.numpy(), prob.z.numpy(), prob.y.numpy(), P.numpy(), K, Q, factored, steps, 0.1)
    return torch.from_numpy(K @ Q.swapaxes(-1, -2) if factored else K)


def starts(parametrization):
    if parametrization == "KQ":
        return gaussian_start((RUNS,), 10, 10)
    return torch.zeros(RUNS, 10, 10).double(), torch.zeros(RUNS, 10, 10).double()


@pytest.mark.parametrize("parametrization, least", [("W", 150), ("KQ", 90)])
def test_ensemble_of_100_runs(row, ensemble, parametrization, least):
    start = starts(parametrization)
    first = start[0][0] if parametrization == "W" else (start[0][0], start[1][0])
    ours = train(ensemble, parametrization, steps=SHORT, record=SHORT)
    assert torch.allclose(ours.W[-1], compiled(ensemble, parametrization, start, SHORT), atol=1e-6)
    row.in_turns(
        f"Training {parametrization}: 100 runs, 2000 steps, (6, 8, 10)", "100 runs of 2000 steps",
        lambda: train(ensemble, parametrization, steps=STEPS, record=STEPS),
        {"autograd, one at a time": (
            lambda: one_at_a_time(ensemble[0], parametrization, first, SHORT), SHORT / STEPS / RUNS)},
        {"compiled loop, problem by problem": (lambda: compiled(ensemble, parametrization, start, STEPS), 1.0)},
    )
    row.bar("times faster than autograd", row.times(), at_least=least)
    row.bar("times the compiled loop", row.over_floor(), at_most=2.0, aim=True)


@pytest.mark.parametrize("parametrization", ["W", "KQ"])
def test_thousand_runs(row, parametrization):
    prob = token_selection(6, 8, 10, batch=1000)
    row.in_turns(
        f"Training {parametrization}: 1000 runs at once, 200 steps, (6, 8, 10)", "1000 runs of 200 steps",
        lambda: train(prob, parametrization, steps=SHORT, record=SHORT),
        {"ours, 100 runs at a time": (
            lambda: train(prob[:100], parametrization, steps=SHORT, record=SHORT), 0.1)},
        rounds=3,
    )


def test_exact_gradient_against_naive(row, ensemble):
    row.in_turns(
        "Training W with the exact gradient: 100 runs, 200 steps", "100 runs of 200 steps",
        lambda: train(ensemble, steps=SHORT, record=SHORT),
        {"ours, naive gradient": (lambda: train(ensemble, steps=SHORT, record=SHORT, gradient="naive"), 1.0)},
    )


MEMORY = """
from attncore.data import token_selection
from attncore.training import train
prob, steps, start = token_selection(6, 8, 10, batch=1000), int(sys.argv[1]), time.process_time()
train(prob, "KQ", steps=steps, record=steps)
print(time.process_time() - start, peak())
"""


def test_memory_of_a_thousand_runs(row):
    """Peak memory of 1000 (K, Q) runs at once, imports counted, is that of a tenth of the steps."""
    spent, peak = row.alone(
        "Training (K, Q): memory of 1000 runs at once, 1000 steps, (6, 8, 10)", "1000 runs of 1000 steps",
        lambda: run_fresh(MEMORY, 1000))
    _, before = run_fresh(MEMORY, 100)
    row.measure(peak_MiB=peak, peak_MiB_of_100_steps=before)
    row.bar("peak memory, 1000 steps over 100 steps", peak / before, at_most=1.02)
