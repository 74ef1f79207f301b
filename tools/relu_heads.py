"""Make `book/data/relu-heads.json`: the runs with a ReLU head of the page *Beyond linear heads*.

Run from the root of the repository::

    python tools/relu_heads.py

It takes about ten minutes on one core, since at d = 10 only one draw in fifty passes the published filter.
n = 3, T = 4; problem b of a width depends on the seed, d and b only.

`published`: for each d, 2000 steps as published (textbook gradient, the rounding unit added to its norm), what the
filter says about every draw, and the accepted runs. `long`: d = 4 with the exact gradient and nothing added, at
several steps, for the draws that the filter accepts at the first of these steps, each fitted with the tokens it
keeps at that step.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from stored import FOLDER, significant, write

from attncore.attention import attend
from attncore.data import TokenSelection
from attncore.several_tokens import Outcome, compare_selection, relu_problems
from attncore.svm import attention_svm_multi, best_combination, finite_part
from attncore.training import train

TARGET = FOLDER / "relu-heads.json"
N, T, SEED, STEPS, BLOCK = 3, 4, 0, 2000, 500
DRAWS = {4: 1500, 6: 2500, 8: 4500, 10: 9000}
LONG, MARKS = 1500, [500, 1000, 2000, 4000, 8000]
IDLE = 1e-6
PUBLISHED = {"gradient": "naive", "norm_eps": float(np.finfo(float).eps)}
rounded = partial(significant, digits=5)


def published(d: int) -> dict:
    """One width: counts of outcomes, and the accepted runs."""
    counts, rows = np.zeros(len(Outcome), int), []
    for first in range(0, DRAWS[d], BLOCK):
        drawn = relu_problems(N, T, d, seed=SEED, batch=BLOCK, start=first)
        run = train(drawn.prob, steps=STEPS, head=drawn.head, init=drawn.start, record=STEPS, **PUBLISHED)
        seen = compare_selection(drawn.prob, run.W[-1])
        counts += np.bincount(seen.outcome.long(), minlength=len(Outcome))
        single = seen.attention.argmax(-1, keepdim=True) == torch.arange(T)
        alone = attention_svm_multi(drawn.prob.X, drawn.prob.z, single)
        rows.append(torch.stack([
            first + torch.arange(BLOCK), seen.correlation, seen.correlation_direction, seen.gamma,
            (seen.kept.sum(-1) > 1).any(-1).double(), best_combination(run.W[-1], 0 * alone.W, alone.W).correlation,
        ], -1)[seen.accepted])
        print(d, first, len(rows[-1]), flush=True)
    names = ["draw", "corr", "corr_mm", "gamma", "several", "corr_single"]
    return {"d": d, "draws": DRAWS[d], "outcomes": {o.name: int(counts[o]) for o in Outcome},
            **dict(zip(names, rounded(torch.cat(rows).T), strict=True))}


def without(prob, s, kept, W, idle):
    """Correlation with the fit to the sequences that are not idle; nan where they drop nothing."""
    found = torch.full(W.shape[:1], torch.nan, dtype=W.dtype)
    for pattern in idle.unique(dim=0):
        live = ~pattern
        take = (idle == pattern).all(-1) & (~kept[:, live]).any(-1).any(-1)
        if not bool(take.any()):
            continue
        X, z, k, a = (value[take][:, live] for value in (prob.X, prob.z, kept, s))
        svm, part = attention_svm_multi(X, z, k), finite_part(X, z, k, a)
        found[take] = best_combination(W[take], part.W, svm.W).correlation
    return found


def long() -> dict:
    """The draws that the filter accepts at the first mark, and how their fits change."""
    drawn = relu_problems(N, T, 4, seed=SEED, batch=LONG)
    run = train(drawn.prob, steps=MARKS[-1], head=drawn.head, init=drawn.start, record=MARKS)
    seen = [compare_selection(drawn.prob, W, unclear=True) for W in run.W[1:]]
    cohort = seen[0].accepted
    prob = TokenSelection(*(a[cohort] for a in (drawn.prob.X, drawn.prob.z, drawn.prob.y, drawn.prob.v)))
    hidden, table = drawn.hidden[cohort], {
        "corr": [], "corr_live": [], "corr_mm": [], "idle": [], "several": [], "norm": []}
    for one, W in zip(seen, run.W[1:, cohort], strict=True):
        s, kept = one.attention[cohort], one.kept[cohort]
        output = (attend(prob.X, s) @ hidden.mT).clamp(min=0).sum(-1)
        idle = (prob.y < 0) & (output <= IDLE)
        several = ((kept.sum(-1) > 1) & ~idle).any(-1)  # live sequences that mix
        for name, value in zip(table, (one.correlation[cohort], without(prob, s, kept, W, idle),
                                       one.correlation_direction[cohort], idle.any(-1).double(), several.double(),
                                       W.norm(dim=(1, 2))), strict=True):
            table[name].append(rounded(value))
    return {"d": 4, "draws": LONG, "steps": MARKS, "draw": cohort.nonzero()[:, 0].tolist(), **table}


def main() -> None:
    """Compute everything and write the file."""
    torch.set_num_threads(1)
    write(TARGET, __file__, SEED, {
        "n": N, "T": T, "steps": STEPS, "long": long(), "published": [published(d) for d in DRAWS],
    })


if __name__ == "__main__":
    main()
