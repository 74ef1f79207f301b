"""What one step of in-context training costs at each level, in the same run, on one core.

The opponent is the token level: sampled prompts, softmax attention, autograd, as the paper states the model
(K = 20, N = 200, 4096 prompts a step). The floor is the exact level's sum as a compiled loop. A run of s steps
evaluates the loss s + 1 times, so shares of work are counted in evaluations.
"""

import numba
import numpy as np
import pytest
from rows import seconds
from scipy import stats

from attncore import incontext

K, N, PROMPTS = 20, 200, 4096
SETTING = {"K": K, "N": N, "prompts": PROMPTS}
TOKEN_STEPS = 3


@numba.njit(cache=False)
def compiled_descent(c, weight, N, K, p_k, eta, steps):
    """The exact balanced level as one compiled loop: the limit on one core without vector instructions."""
    A = 0.0
    for _ in range(steps):
        shrink = np.exp(-A * K / (K - 1))
        alpha = 0.0
        for i in range(len(c)):
            n = N - c[i]
            rest = n * shrink / (c[i] + n * shrink)
            squares = n * (1 - 1 / (K - 1)) + n * n / (K - 1)
            spread = 1 + squares / (n * n) if n > 0 else 0.0
            alpha += weight[i] * spread * rest * rest * (1 - rest)
        A += eta * p_k * alpha
    return A


def against_the_token_level(row, title, level, steps, settings, least, count=1, floors=None):
    """Time `level`, `count` settings at once, against the token level."""
    work = f"{count} settings, {steps} steps" if count > 1 else f"{steps} steps"
    share = (TOKEN_STEPS + 1) / (steps + 1) / count
    found = row.in_turns(
        title, work,
        lambda: incontext.simulate(level, steps=steps, record=steps, **settings),
        {"token level, autograd": (
            lambda: incontext.simulate("token", steps=TOKEN_STEPS, record=TOKEN_STEPS, **SETTING), share)},
        floors, rounds=3,
    )
    row.measure(microseconds_per_setting_and_step=row.record["ours"] / (steps + 1) / count * 1e6)
    row.bar("times faster than the token level", row.times(), at_least=least)
    return found[None]


def test_exact_level(row):
    c = np.arange(N + 1.0)
    weight = stats.binom.pmf(c, N, 1 / K)
    floor = {"compiled loop": (lambda: compiled_descent(c, weight, N, K, 1 / K, 1.0, 2000), 1.0)}
    traj = against_the_token_level(
        row, "In-context, exact level (K, N) = (20, 200)", "exact", 2000, {"K": K, "N": N}, 5000, floors=floor)
    A = float(traj.columns["balanced"].A[-1])
    assert compiled_descent(c, weight, N, K, 1 / K, 1.0, 2000) == pytest.approx(A, abs=1e-11)


def test_count_level(row):
    against_the_token_level(row, "In-context, count level (20, 200), 4096 prompts", "count", 20, SETTING, 15)


def test_mean_field_over_a_thousand_settings(row):
    settings = {"K": np.full(1000, K), "eta": np.linspace(0.5, 2.0, 1000)}
    against_the_token_level(
        row, "In-context, mean-field level, 1000 settings at once", "mean_field", 200, settings, 1e5, count=1000)


@pytest.mark.parametrize("expectation", ["integral", "sum"])
def test_three_scalars_with_long_prompts(row, expectation):
    """N = 10^4 and 3500 steps, the mass left out at most 1e-12."""
    run = {"K": 20, "N": 10_000, "p1": 0.5, "steps": 3500, "expectation": expectation, "tail": 1e-12}
    spent, traj = row.alone(
        f"In-context, exact level, imbalanced, N = 10,000, by {expectation}", "3500 steps",
        lambda: seconds(lambda: incontext.simulate("exact", **run)))
    row.measure(dropped_mass=float(traj.dropped))
    row.bar("seconds of processor time", spent, at_most=10.0)
    assert float(traj.dropped) <= 1e-12


def test_flow_over_twelve_decades(row):
    times = np.logspace(0, 12, 121)
    _, traj = row.alone(
        "In-context, gradient flow over twelve decades (20, 200)", "121 times",
        lambda: seconds(lambda: incontext.flow("exact", times, K=K, N=N, p1=0.5)))
    row.measure(scaled_loss_at_the_end=float(times[-1] * (traj.loss[-1] - traj.floor)))
