"""What one step of in-context training costs at each level, in the same run, on one core.

Run with ``pytest benchmarks/test_incontext.py --benchmark-only -s``.  The opponent is the token level: sampled prompts,
softmax attention, autograd, as the paper states the model (K = 20, N = 200, 4096 prompts a step).  The floor is the
exact level's sum as a compiled loop.  Ratios are of processor times taken in turns, so that a busy machine slows both
sides; they go to ``extra_info`` of the benchmark's record.
"""

import time

import numba
import numpy as np
import pytest
import torch
from scipy import stats

from attncore import incontext

torch.set_num_threads(1)

K, N, PROMPTS = 20, 200, 4096
SETTING = {"K": K, "N": N, "prompts": PROMPTS}


def per_step(level: str, steps: int, **kwargs) -> float:
    """Processor seconds a step, the call's overhead included; `record` is off, as for the opponent."""
    start = time.process_time()
    incontext.simulate(level, steps=steps, record=steps, **kwargs)
    return (time.process_time() - start) / (steps + 1)


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


@pytest.fixture(scope="module")
def token_seconds() -> float:
    per_step("token", 1, **SETTING)
    return min(per_step("token", 3, **SETTING) for _ in range(3))


def report(benchmark, seconds: float, token_seconds: float, bar: float):
    ratio = token_seconds / seconds
    benchmark.extra_info.update({"seconds_per_setting_and_step": seconds, "token_seconds_per_step": token_seconds,
                                 "times_the_token_level": ratio, "bar": bar, "threads": 1})
    print(f"\n{seconds * 1e6:.3g} us a setting and step, token level {token_seconds * 1e3:.0f} ms: "
          f"{ratio:.3g} times (bar {bar:g})")
    assert ratio >= bar


def best(level: str, steps: int, rounds: int = 5, **kwargs) -> float:
    return min(per_step(level, steps, **kwargs) for _ in range(rounds))


def test_exact_level(benchmark, token_seconds):
    benchmark.pedantic(incontext.simulate, args=("exact",), kwargs={"K": K, "N": N, "steps": 2000}, rounds=3)
    report(benchmark, best("exact", 2000, K=K, N=N), token_seconds, 5000)


def test_exact_level_against_a_compiled_loop(benchmark):
    c = np.arange(N + 1.0)
    weight = stats.binom.pmf(c, N, 1 / K)
    ours = incontext.simulate("exact", K=K, N=N, steps=2000, record=2000).columns["balanced"].A[-1]
    assert compiled_descent(c, weight, N, K, 1 / K, 1.0, 2000) == pytest.approx(float(ours), abs=1e-11)
    benchmark.pedantic(compiled_descent, args=(c, weight, N, K, 1 / K, 1.0, 2000), rounds=5)
    start = time.process_time()
    compiled_descent(c, weight, N, K, 1 / K, 1.0, 20_000)
    floor = (time.process_time() - start) / 20_000
    ours = best("exact", 2000, K=K, N=N)
    benchmark.extra_info.update({"ours_seconds_per_step": ours, "compiled_seconds_per_step": floor,
                                 "times_the_compiled_loop": ours / floor, "threads": 1})
    print(f"\nexact level {ours * 1e6:.3g} us a step, compiled loop {floor * 1e6:.3g} us")


def test_count_level(benchmark, token_seconds):
    benchmark.pedantic(incontext.simulate, args=("count",), kwargs={**SETTING, "steps": 20}, rounds=3)
    report(benchmark, best("count", 20, **SETTING), token_seconds, 15)


def test_mean_field_over_a_thousand_settings(benchmark, token_seconds):
    settings = {"K": np.full(1000, K), "eta": np.linspace(0.5, 2.0, 1000)}
    benchmark.pedantic(incontext.simulate, args=("mean_field",), kwargs={**settings, "steps": 200}, rounds=3)
    report(benchmark, best("mean_field", 200, **settings) / 1000, token_seconds, 1e5)


@pytest.mark.parametrize("expectation", ["integral", "sum"])
def test_three_scalars_with_long_prompts(benchmark, expectation):
    """N = 10^4 and 3500 steps: under 10 seconds on one core, the mass left out at most 1e-12."""
    run = {"K": 20, "N": 10_000, "p1": 0.5, "steps": 3500, "expectation": expectation, "tail": 1e-12}
    start = time.process_time()
    traj = benchmark.pedantic(incontext.simulate, args=("exact",), kwargs=run, rounds=1)
    seconds = time.process_time() - start
    benchmark.extra_info.update({"seconds": seconds, "dropped_mass": float(traj.dropped), "threads": 1})
    print(f"\n{expectation}: {seconds:.2f} s, mass left out {float(traj.dropped):.2g}")
    assert float(traj.dropped) <= 1e-12
    assert seconds < 10


def test_flow_over_twelve_decades(benchmark):
    times = np.logspace(0, 12, 121)
    traj = benchmark.pedantic(incontext.flow, args=("exact", times), kwargs={"K": K, "N": N, "p1": 0.5}, rounds=3)
    benchmark.extra_info["scaled_loss"] = float(times[-1] * (traj.loss[-1] - traj.floor))
