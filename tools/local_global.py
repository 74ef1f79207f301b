"""Make `book/data/svm-local.json`: which selections descent ends in, against the dimension and the start.

Run from the root of the repository::

    python tools/local_global.py

About ten minutes on one core. Unit-norm tokens and queries, n = 4, T = 6, normalised steps of length 0.1. Verdicts are
digits, one a seed: 0 globally optimal, 1 locally, 2 neither. Three parts:

* `zero`: 400 seeds for each d, from W = 0: verdicts after 50 and after 2000 steps, the states in which attention
  saturated, and what the runs that are "neither" after 2000 steps are later (`later`), with their norms;
* `choices`: how many of all 1296 selections are feasible, and how many locally but not globally optimal;
* `starts`: d = 8, from matrices of several norms: Gaussian directions, and the two directions ``v q^T`` and
  ``-v q^T`` with ``q^T z_i = y_i``, whose largest logits are the best and the worst tokens.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from stored import FOLDER, write

from attncore.attention import softmax_attention
from attncore.data import token_selection
from attncore.svm import local_optimality
from attncore.training import train

TARGET = FOLDER / "svm-local.json"
N, T, SEED, SEEDS, STEPS = 4, 6, 0, 400, 2000
DIMENSIONS, LATER = (2, 4, 8, 16, 32), (4000, 8000, 16000, 32000, 64000)
START_SEEDS, START_DIMENSION, NORMS, START_STEPS = 200, 8, (1, 4, 16, 64, 256), 10000
CHOICE_SEEDS = 20


def verdicts(prob, W) -> torch.Tensor:
    """Verdict on the tokens with the largest logits under W, one a problem."""
    chosen = softmax_attention(prob.X, W, prob.z).argmax(-1)
    return local_optimality(prob.X, prob.z, prob.scores, chosen).verdict


def digits(values) -> str:
    """One digit a seed."""
    return "".join(str(int(v)) for v in values)


def from_zero(d: int) -> dict:
    """Runs from W = 0, and how those that select neither go on."""
    prob = token_selection(N, T, d, seed=SEED, batch=SEEDS)
    run = train(prob, steps=STEPS, record=[50])
    early, end = (verdicts(prob, W) for W in run.W[1:])
    astray = (end == 2).nonzero()[:, 0]
    found = {"d": d, "step_50": digits(early), "step_2000": digits(end), "saturated": run.saturated.tolist(),
             "neither": astray.tolist(), "norm": [], "later": {}, "norms": {}}
    if len(astray):
        rest = prob[astray]
        on = train(rest, steps=max(LATER) - STEPS, init=run.W[-1, astray],
                   record=[k - STEPS for k in LATER])
        found["norm"] = [round(float(x), 3) for x in on.W[0].norm(dim=(1, 2))]
        for k, W in zip(LATER, on.W[1:], strict=True):
            found["later"][str(k)] = digits(verdicts(rest, W))
            found["norms"][str(k)] = [round(float(x), 3) for x in W.norm(dim=(1, 2))]
    return found


def choices(d: int) -> dict:
    """Numbers of feasible and of locally (not globally) optimal selections among all T^n."""
    every = torch.tensor(list(itertools.product(range(T), repeat=N)))
    prob = token_selection(N, T, d, seed=SEED, batch=CHOICE_SEEDS)
    feasible, local = [], []
    for b in range(CHOICE_SEEDS):
        one = prob[b]
        X, z, scores = (a.expand(len(every), *a.shape) for a in (one.X, one.z, one.scores))
        judged = local_optimality(X, z, scores, every)
        feasible.append(int(judged.feasible.sum()))
        local.append(int((judged.verdict == 1).sum()))
    return {"d": d, "all": len(every), "feasible": feasible, "local": local}


def start(prob, kind: str, norm: float) -> torch.Tensor:
    """Starting matrices of the given norm."""
    if kind == "random":
        rng = np.random.default_rng((SEED, 1))
        W = torch.tensor(rng.normal(size=(len(prob.X), START_DIMENSION, START_DIMENSION)))
    else:
        q = torch.linalg.lstsq(prob.z, prob.y[..., None]).solution[..., 0]
        W = (1 if kind == "best" else -1) * prob.v[..., :, None] * q[..., None, :]
    return norm * W / W.norm(dim=(1, 2), keepdim=True)


def from_start(kind: str, norm: float) -> dict:
    """Runs from starts of one kind and one norm, d = 8."""
    prob = token_selection(N, T, START_DIMENSION, seed=SEED, batch=START_SEEDS)
    run = train(prob, steps=START_STEPS, init=start(prob, kind, norm), record=[STEPS])
    return {"kind": kind, "norm": norm, "step_2000": digits(verdicts(prob, run.W[1])),
            "step_10000": digits(verdicts(prob, run.W[2]))}


def main() -> None:
    """Compute all parts and write the file."""
    torch.set_num_threads(1)
    parts = {"zero": [], "choices": [], "starts": []}
    for d in DIMENSIONS:
        parts["zero"].append(from_zero(d))
        print(d, [parts["zero"][-1]["step_2000"].count(k) for k in "012"], parts["zero"][-1]["later"], flush=True)
    for kind, norm in itertools.product(("random", "best", "worst"), NORMS):
        parts["starts"].append(from_start(kind, norm))
        print(kind, norm, [parts["starts"][-1]["step_10000"].count(k) for k in "012"], flush=True)
    for d in DIMENSIONS:
        parts["choices"].append(choices(d))
        print(d, parts["choices"][-1]["local"], flush=True)
    data = {
        "n": N, "T": T, "start_d": START_DIMENSION, **parts,
    }
    write(TARGET, __file__, SEED, data, packages=())


if __name__ == "__main__":
    main()
