"""Make `book/data/four_runs.json`: the grid of training runs of the page *The algorithm on data*.

Run from the root of the repository::

    python tools/four_runs.py

It takes a quarter of an hour on one core. Every run uses minibatches of 64 queries, 512 tokens, d = p = 5,
singular values 0.3 to 0.15 of the whitened target and noise 0.1; six problems at each condition number, the
same ones for every method, and paired over the condition numbers.
"""

from __future__ import annotations

from functools import partial

import torch
from stored import FOLDER, significant, write

from attncore import preconditioning as pc

TARGET = FOLDER / "four_runs.json"
SEED, N, NOISE, PROBLEMS, BATCH, STEPS = 0, 512, 0.1, 6, 64, 2000
SINGULAR = [0.3, 0.2625, 0.225, 0.1875, 0.15]
CONDITIONS = (1000, 1, 100)
RECORD = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
PLAIN = dict(lam=0.0, tau=1.0)
numbers = partial(significant, digits=5)


def methods():
    """Name -> arguments of `fit`: ours, and each opponent on a grid of step sizes."""
    ours = dict(method="preconditioned", minibatch=BATCH)
    grid = {"ours, random": ours | dict(init="random"), "ours, spectral": ours | dict(init="spectral"),
            "sgd 0.3, spectral": PLAIN | dict(method="sgd", init="spectral", lr=0.3)}
    for lr in (0.1, 0.3, 1.0, 3.0, 10.0):
        grid[f"sgd {lr:g}, random"] = PLAIN | dict(method="sgd", init="random", lr=lr)
    for lr in (0.1, 0.3, 1.0):
        grid[f"momentum {lr:g}, random"] = PLAIN | dict(method="sgd", init="random", lr=lr, momentum=0.9)
    for lr in (0.01, 0.05, 0.2):
        grid[f"adam {lr:g}, random"] = PLAIN | dict(method="adam", init="random", lr=lr, minibatch=BATCH)
    return grid


def trained(kappa, arguments):
    """One method on the six problems: L_n and the excess population loss at the recorded steps, row by row."""
    task = pc.gaussian_task(N, SINGULAR, kappa=kappa, noise=NOISE, seed=SEED, batch=PROBLEMS)
    run = pc.fit(task.X, task.Y, steps=STEPS, record=RECORD, tol=0, seed=SEED, **arguments)
    excess = torch.stack([pc.population_loss(A, B, task.Sigma, task.M)
                          for A, B in zip(run.history.A, run.history.B, strict=True)])
    excess[run.history.loss.isnan()] = torch.nan
    lost = [None] * (len(RECORD) + 2 - len(run.history.steps))     # every problem diverged: the run ended early
    pad = [[None] * PROBLEMS for _ in lost]
    return {"loss": numbers(run.history.loss) + pad, "excess": numbers(excess) + pad}


def main():
    torch.set_num_threads(1)
    data = {
        "settings": {"n": N, "s": SINGULAR, "noise": NOISE, "problems": PROBLEMS, "minibatch": BATCH},
        "steps": [0, *RECORD, STEPS],
        "runs": {},
    }
    for kappa in CONDITIONS:
        for name, arguments in methods().items():
            data["runs"].setdefault(str(kappa), {})[name] = trained(kappa, arguments)
            print(kappa, name, data["runs"][str(kappa)][name]["loss"][-1], flush=True)
        write(TARGET, __file__, SEED, data)


if __name__ == "__main__":
    main()
