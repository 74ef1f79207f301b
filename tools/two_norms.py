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
widths  2000 steps with m columns, with the ridge and without; seed by seed
lengths 2000 steps with sequences of T tokens, W and (K, Q) with the ridge: at the end, after 20 steps, and at the end
        against the SVM at the optimal tokens; seed by seed
self    2000 steps of self-attention: W and (K, Q); with the ridge, without it, and with a penalised head
losses  2000 steps with other losses and heads; null where a run does not end on one token in every sequence
"""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import torch
from stored import FOLDER, significant, write

from attncore.data import token_selection
from attncore.geometry import correlation
from attncore.heads import quadratic_head
from attncore.svm import attention_svm
from attncore.training import train
from attncore.weights import gaussian_start

TARGET = FOLDER / "two_norms.json"
SEED, N, T, D, EPS, SMALLER = 0, 6, 8, 10, 2.2e-16, 30
SEEDS, LONG_SEEDS, RIDGE_SEEDS, FIRST = 200, 100, 50, 10
STEPS = [100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000]
RIDGES = [1e-4, 1e-8, 1e-16, 1e-32, 1e-64, 1e-128]
WIDTHS, LENGTHS, LENGTH_SEED, LENGTH_SEEDS, EARLY = [1, 2, 3, 4, 5, 6, 8, 10], [2, 4, 8, 16, 32], 1, 100, 20
LOSSES = [("linear", "logistic", None), ("linear", "exponential", None), ("linear", "correlation", None),
          ("penalised", "logistic", 0.02), ("relu", "logistic", None)]
ONE_TOKEN = 1 - 1e-9
RIDGE = dict(ridge=EPS, norm_eps=EPS)
LONG = {"W": ("W", 0.0, 1), "ridge": ("KQ", EPS, 1), "ridge, small start": ("KQ", EPS, SMALLER),
        "no ridge": ("KQ", 0.0, 1), "no ridge, small start": ("KQ", 0.0, SMALLER)}

digits = partial(significant, digits=6)


def trained(prob, record, parametrization, **options):
    """A run, and the correlation (R, seeds) of its listed states with the SVM at the tokens it holds at the end."""
    run = train(prob, parametrization, steps=max(record), record=record, normalization="each", **options)
    return run, against(prob, run, run.attention.argmax(-1), parametrization)


def against(prob, run, tokens, parametrization):
    """Correlation (R, seeds) of the recorded states, without the start, with the SVM at `tokens`."""
    svm = attention_svm(prob.X, prob.z, tokens, norm="nuc" if parametrization == "KQ" else "fro")
    if not bool((svm.gap < 1e-9).all() & (svm.uniqueness == 1).all()):
        raise RuntimeError("an SVM was not certified with a unique solution")
    return correlation(run.W[1:], svm.W)


def correlations(seeds: int, record, parametrization="KQ", smaller=1, **options):
    """Correlation with the SVM, (R, seeds), at the listed steps, and the recorded key-query matrices."""
    prob = token_selection(N, T, D, seed=SEED, batch=(seeds,))
    if parametrization == "KQ":
        options["init"] = tuple(M / smaller for M in gaussian_start((seeds,), D, D, seed=SEED))
    run, found = trained(prob, record, parametrization, **options)
    return found, run.W[1:]


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


def widths() -> list[dict]:
    """Runs with m columns, with and without the ridge."""
    prob, rows = token_selection(N, T, D, seed=SEED, batch=(SEEDS,)), []
    for m, options in product(WIDTHS, (RIDGE, {})):
        _, found = trained(prob, [2000], "KQ", m=m, **options)
        rows.append({"m": m, "ridge": bool(options), "corr": digits(found[-1])})
        print("m", m, bool(options), float(found[-1].mean()), flush=True)
    return rows


def lengths() -> list[dict]:
    """Runs with T tokens."""
    rows = []
    for count in LENGTHS:
        prob = token_selection(N, count, D, seed=LENGTH_SEED, batch=(LENGTH_SEEDS,))
        row = {"T": count}
        for kind, options in (("W", {}), ("KQ", RIDGE)):
            run, found = trained(prob, [EARLY, 2000], kind, **options)
            row[kind] = {"end": digits(found[-1]), "early": digits(found[0]),
                         "optimal": digits(against(prob, run, prob.optimal, kind)[-1]),
                         "attention": significant(run.attention.amax(-1).amin(-1), 9)}
        rows.append(row)
        print("T", count, [float(np.mean(row[kind]["end"])) for kind in ("W", "KQ")], flush=True)
    return rows


def self_attention() -> dict:
    """Runs in which the first token is the query."""
    prob = token_selection(N, T, D, seed=SEED, batch=(SEEDS,), self_attention=True)
    penalised = dict(head=quadratic_head(0.1))
    runs = {"W": ("W", {}), "KQ": ("KQ", RIDGE), "KQ, no ridge": ("KQ", {"norm_eps": EPS}),
            "W, penalised head": ("W", penalised), "KQ, penalised head": ("KQ", penalised | RIDGE)}
    return {name: digits(trained(prob, [2000], kind, **options)[1][-1]) for name, (kind, options) in runs.items()}


def losses() -> list[dict]:
    """Other losses and heads, on the runs that end on one token in every sequence."""
    prob, rows = token_selection(N, T, D, seed=SEED, batch=(LENGTH_SEEDS,)), []
    for head, loss, penalty in LOSSES:
        row = {"head": head, "loss": loss, "penalty": penalty}
        for kind, options in (("W", {}), ("KQ", RIDGE)):
            used = quadratic_head(penalty) if penalty else head
            run, found = trained(prob, [2000], kind, head=used, loss=loss, **options)
            one = run.attention.amax(-1).amin(-1) > ONE_TOKEN
            row[kind] = [value if keep else None for value, keep in zip(digits(found[-1]), one, strict=True)]
        rows.append(row)
        print(head, loss, [sum(v is not None for v in row[kind]) for kind in ("W", "KQ")], flush=True)
    return rows


def main() -> None:
    """Compute the three parts and write the file."""
    torch.set_num_threads(1)
    data = {
        "settings": {"n": N, "T": T, "d": D, "seeds": SEEDS, "long_seeds": LONG_SEEDS, "ridge_seeds": RIDGE_SEEDS,
                     "published_ridge": EPS, "smaller": SMALLER,
                     "length_seed": LENGTH_SEED, "length_seeds": LENGTH_SEEDS, "early": EARLY},
        "table": table(), "steps": STEPS, "long": {}, "ridges": [],
        "widths": widths(), "lengths": lengths(), "self": self_attention(), "losses": losses(),
    }
    for ridge in RIDGES:
        data["ridges"].append(one_ridge(ridge))
        print(data["ridges"][-1], flush=True)
    for name, arguments in LONG.items():
        data["long"][name] = long_run(*arguments)
        print(name, data["long"][name], flush=True)
    write(TARGET, __file__, SEED, data)


if __name__ == "__main__":
    main()
