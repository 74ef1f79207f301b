"""Make `book/data/two_norms.json`: descent on (K, Q) with and without a ridge, for longer than a page can wait.

Run from the root of the repository::

    python tools/two_norms.py

It takes some ten minutes on one core. Unit-norm random problems, n = 6, T = 8, d = 10, m = d; normalised steps of
length 0.1, each matrix by its own norm. Every correlation is with the SVM, in the norm of the parametrisation, at the
tokens that the run holds at its last state.

table   2000 steps: ridge or none, a constant in the denominator of the step or none, exact or naive gradient, the
        published scale of the start or one 30 times smaller; seed by seed
long    100,000 steps of five runs: mean and 10% and 90% quantiles over the seeds at each recorded step
ridges  the ridge from 1e-4 to 1e-128, after 2000 and after 20,000 steps; the first seeds singly after 2000 steps
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np
import torch

from attncore.data import token_selection
from attncore.geometry import correlation
from attncore.svm import attention_svm
from attncore.training import train
from attncore.weights import gaussian_start

TARGET = Path(__file__).resolve().parents[1] / "book" / "data" / "two_norms.json"
SEED, N, T, D, EPS, SMALLER = 0, 6, 8, 10, 2.2e-16, 30
SEEDS, LONG_SEEDS, RIDGE_SEEDS, FIRST = 200, 100, 50, 10
STEPS = [100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000]
RIDGES = [1e-4, 1e-8, 1e-16, 1e-32, 1e-64, 1e-128]
LONG = {"W": ("W", 0.0, 1), "ridge": ("KQ", EPS, 1), "ridge, small start": ("KQ", EPS, SMALLER),
        "no ridge": ("KQ", 0.0, 1), "no ridge, small start": ("KQ", 0.0, SMALLER)}


def digits(values, count: int = 6):
    """Numbers with `count` significant digits."""
    values = np.asarray(values)
    return float(f"{values:.{count}g}") if values.ndim == 0 else [digits(v, count) for v in values]


def correlations(seeds: int, record, parametrization="KQ", smaller=1, **options):
    """Correlation with the SVM, (R, seeds), at the listed steps, and the recorded key-query matrices."""
    prob = token_selection(N, T, D, seed=SEED, batch=(seeds,))
    if parametrization == "KQ":
        options["init"] = tuple(M / smaller for M in gaussian_start((seeds,), D, D, seed=SEED))
    run = train(prob, parametrization, steps=max(record), record=record, normalization="each", **options)
    norm = "nuc" if parametrization == "KQ" else "fro"
    svm = attention_svm(prob.X, prob.z, run.attention.argmax(-1), norm=norm)
    return correlation(run.W[1:], svm.W), run.W[1:]


def table() -> list[dict]:
    """The sixteen runs of 2000 steps."""
    rows = []
    for ridge, norm_eps, gradient, smaller in product((0.0, EPS), (0.0, EPS), ("exact", "naive"), (1, SMALLER)):
        found, _ = correlations(SEEDS, [2000], smaller=smaller, ridge=ridge, norm_eps=norm_eps, gradient=gradient)
        rows.append({"ridge": ridge, "norm_eps": norm_eps, "gradient": gradient, "smaller": smaller,
                     "corr": digits(found[-1])})
        print(rows[-1] | {"corr": float(found[-1].mean())}, flush=True)
    return rows


def long_run(parametrization: str, ridge: float, smaller: int) -> dict:
    """One run of 100,000 steps."""
    found, _ = correlations(LONG_SEEDS, STEPS, parametrization, smaller, ridge=ridge)
    low, high = np.quantile(found, [0.1, 0.9], axis=1)
    return {"mean": digits(found.mean(1)), "low": digits(low), "high": digits(high)}


def one_ridge(ridge: float) -> dict:
    """One ridge after 2000 and after 20,000 steps."""
    found, W = correlations(RIDGE_SEEDS, [2000, 20_000], ridge=ridge)
    size = torch.linalg.matrix_norm(W, "nuc").mean(1)
    return {"ridge": ridge, "mean": digits(found.mean(1)), "nuclear_norm": digits(size),
            "first": digits(found[0, :FIRST])}


def main() -> None:
    """Compute the three parts and write the file."""
    torch.set_num_threads(1)
    data = {
        "provenance": {
            "command": "python tools/two_norms.py", "seed": SEED, "version": version("attncore"),
            "machine": f"{platform.machine()}, one core, {platform.system()}, torch {torch.__version__}",
        },
        "settings": {"n": N, "T": T, "d": D, "seeds": SEEDS, "long_seeds": LONG_SEEDS, "ridge_seeds": RIDGE_SEEDS,
                     "published_ridge": EPS, "smaller": SMALLER},
        "table": table(), "steps": STEPS, "long": {}, "ridges": [],
    }
    for ridge in RIDGES:
        data["ridges"].append(one_ridge(ridge))
        print(data["ridges"][-1], flush=True)
    for name, arguments in LONG.items():
        data["long"][name] = long_run(*arguments)
        print(name, data["long"][name], flush=True)
    TARGET.write_text(json.dumps(data, separators=(",", ":")) + "\n", "utf8")


if __name__ == "__main__":
    main()
