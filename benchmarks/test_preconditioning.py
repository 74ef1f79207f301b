"""Closed-form gradient against its peers in the same run, and the headline experiment of Part III, on one core.

Run with ``pytest benchmarks/test_preconditioning.py --benchmark-only -s``. Ratios are of processor times taken in
turns, so that a busy machine slows both sides; what is measured goes to ``extra_info`` of the benchmark's record.
"""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from attncore import preconditioning as pc

torch.set_num_threads(1)

PEAK = """
import os, resource, sys, torch
torch.set_num_threads(1)
from attncore import preconditioning as pc
def peak():
    # Linux hands the parent's ru_maxrss down to a child; the high-water mark of its own memory it keeps apart.
    if os.path.exists("/proc/self/status"):
        lines = dict(line.split(":") for line in open("/proc/self/status") if line.startswith("VmHWM"))
        if lines:
            return int(lines["VmHWM"].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
def work(n, how):
    data = pc.gaussian_task(n, [0.3, 0.26, 0.22, 0.19, 0.15], noise=0.1)
    A, B = pc.spectral_init(data.Sigma, data.M)
    if how == "naive":
        A, B = A.requires_grad_(), B.requires_grad_()
        out = torch.softmax(data.X @ B @ data.X.T, -1) @ data.X @ A.T
        torch.autograd.grad((out - data.Y).square().sum() / (2 * n), (A, B))
    elif how == "closed":
        pc.empirical_loss(A, B, data.X, data.Y), pc.empirical_gradient(A, B, data.X, data.Y)
n, how = int(sys.argv[1]), sys.argv[2]
imported = peak()
work(500, how)  # Libraries take their workspaces on first use, whatever the size.
before = peak()
work(n, how)
print(peak() - imported, peak() - before)
"""


def extra_memory(n, how) -> tuple[float, float]:
    """Peak resident memory of a fresh process over that of its imports, and over that of a small run, in MiB."""
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(n), how], env=os.environ | threads, capture_output=True, text=True, check=True
    )
    return tuple(float(word) for word in done.stdout.split())


def sample(n, d=5):
    data = pc.gaussian_task(n, np.linspace(0.3, 0.15, d), noise=0.1)
    return *pc.spectral_init(data.Sigma, data.M), data.X, data.Y


def naive(A, B, X, Y):
    """What one writes first: the whole attention map, differentiated by torch."""
    A, B = A.clone().requires_grad_(), B.clone().requires_grad_()
    out = torch.softmax(X @ B @ X.T, -1) @ X @ A.T
    return torch.autograd.grad((out - Y).square().sum() / (2 * len(X)), (A, B))


def seconds(work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def in_turns(*works, rounds=3) -> list[float]:
    """Best processor time of each, taken in turns."""
    return np.min([[seconds(work) for work in works] for _ in range(rounds)], 0).tolist()


def exponentials(pairs, lib):
    """``exp`` alone, in place over a tile in cache, as many times as there are pairs of tokens."""
    tile = lib.zeros((32, 4096), dtype=lib.float64)
    for _ in range(pairs // (32 * 4096)):
        lib.exp(tile, out=tile)
        tile[...] = -0.5


def test_closed_form_against_naive_autograd(benchmark):
    parts, n = sample(8000), 8000
    for one, other in zip(pc.empirical_gradient(*parts), naive(*parts), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    ours, theirs = in_turns(lambda: pc.empirical_gradient(*parts), lambda: naive(*parts), rounds=2)
    memory = {how: extra_memory(n, how)[1] for how in ("closed", "naive", "data")}
    extra = {how: memory[how] - memory["data"] for how in ("closed", "naive")}
    benchmark.extra_info.update(ours_s=ours, naive_s=theirs, speedup=theirs / ours, extra_MiB=extra)
    print(f"\nn = {n}: {ours:.3f} s against {theirs:.3f} s, {theirs / ours:.1f}x; extra memory MiB {extra}")
    benchmark.pedantic(lambda: pc.empirical_gradient(*parts), rounds=2)
    assert theirs >= 3 * ours
    assert extra["closed"] <= extra["naive"] / 40


@pytest.mark.parametrize("d", [5, 8])
def test_a_large_sample_against_exp_alone(benchmark, d):
    parts, n = sample(32_000, d), 32_000
    works = (lambda: pc.empirical_gradient(*parts), lambda: exponentials(n * n, torch), lambda: exponentials(n * n, np))
    ours, by_torch, by_numpy = in_turns(*works, rounds=2)
    memory, _ = extra_memory(n, "closed")
    benchmark.extra_info.update(d=d, ours_s=ours, torch_exp_s=by_torch, numpy_exp_s=by_numpy, over_imports_MiB=memory)
    print(f"\nn = {n}, d = {d}: {ours:.2f} s; exp by torch {by_torch:.2f} s ({ours / by_torch:.2f}x), "
          f"by numpy {by_numpy:.2f} s ({ours / by_numpy:.2f}x); {memory:.0f} MiB over the imports")
    benchmark.pedantic(lambda: pc.empirical_gradient(*parts), rounds=1)
    assert memory <= 120
    if d == 5:
        assert ours <= 1.5 * by_torch


def four_runs(kappa=1000.0, seed=0):
    """Random and spectral starts, SGD and ours, 2000 steps each on 512 tokens."""
    data, records = pc.gaussian_task(512, np.linspace(0.3, 0.15, 5), kappa=kappa, noise=0.1, seed=seed), [20, 100, 500]
    runs = {}
    for init, lr in (("random", 1.0), ("spectral", 0.3)):
        plain = dict(method="sgd", lr=lr, lam=0.0, tau=1.0)
        for name, options in (("sgd", plain), ("ours", dict(method="preconditioned", tol=0.0))):
            fitted = pc.fit(data.X, data.Y, init=init, steps=2000, record=records, seed=seed, **options)
            runs[name, init] = [round(float(value), 4) for value in fitted.history.loss]
    return runs


def test_four_runs(benchmark):
    used = seconds(lambda: benchmark.extra_info.update({" ".join(k): v for k, v in four_runs().items()}))
    print(f"\nfour runs: {used:.1f} s of processor time; {benchmark.extra_info}")
    benchmark.pedantic(lambda: four_runs(kappa=1.0), rounds=1)
    assert used < 10
