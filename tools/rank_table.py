"""Make `book/data/svm-rank.json`: ranks of attention-SVM solutions over dimensions, with their singular values.

Run from the root of the repository::

    python tools/rank_table.py

It takes some minutes on one core, most of them for cvxpy. Unit-norm tokens and queries, the highest-scoring token of
each sequence selected, n = 5, 10, 15, T = 5, d = 2..20, 30 seeds a cell; infeasible problems are left out and counted.
Every solution is certified. For n = 10 the nuclear problems are also solved by cvxpy's default solver, and its
singular values are kept as they come.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from stored import FOLDER, significant, write

from attncore.data import token_selection
from attncore.svm import Status, attention_svm

TARGET = FOLDER / "svm-rank.json"
COUNTS, T, DIMENSIONS, SEEDS, SEED, NOISY = (5, 10, 15), 5, range(2, 21), 30, 0, 10


def relative(values, keep: int) -> list[list[float]]:
    """The first `keep` singular values of each problem, divided by the largest, three digits."""
    return [significant(row[:keep] / row[0], 3) for row in np.asarray(values)]


def by_default(X, z, selected) -> np.ndarray:
    """Singular values of what cvxpy's default solver returns for the nuclear problem."""
    import cvxpy as cp

    n, T, d = X.shape
    own = X[np.arange(n), selected]
    u = (own[:, None] - X)[np.arange(T) != selected[:, None]].reshape(n, T - 1, d)
    A = (u[..., None] * z[:, None, None, :]).reshape(-1, d * d)
    W = cp.Variable((d, d))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # inaccurate answers are what this is about
        cp.Problem(cp.Minimize(cp.normNuc(W)), [A @ cp.vec(W, order="C") >= 1]).solve()
    return np.linalg.svd(W.value, compute_uv=False)


def cell(n: int, d: int) -> dict:
    """Ranks and singular values of one (n, d)."""
    data = token_selection(n, T, d, seed=SEED + 100 * n + d, batch=(SEEDS,))
    X, z, selected = data.X, data.z, data.optimal
    fro = attention_svm(X, z, selected)
    nuc = attention_svm(X, z, selected, norm="nuc")
    good = fro.status == Status.OPTIMAL
    if not torch.equal(good, nuc.status == Status.OPTIMAL):
        raise RuntimeError(f"(n, d) = ({n}, {d}): a feasible problem was not certified in both norms")
    keep = min(n, d)
    found = {
        "n": n, "d": d, "feasible": int(good.sum()),
        "rank_fro": fro.rank[good].tolist(), "rank_nuc": nuc.rank[good].tolist(),
        "unique": int((nuc.uniqueness[good] == 1).sum()),
        "largest_gap": float(f"{max(fro.gap[good].max(), nuc.gap[good].max()):.1e}") if good.any() else None,
        "singular_fro": relative(fro.singular_values[good], keep),
        "singular_nuc": relative(nuc.singular_values[good], keep),
    }
    if n == NOISY:
        arrays = [value[good].numpy() for value in (X, z, selected)]
        found["singular_cvxpy"] = relative([by_default(*one) for one in zip(*arrays, strict=True)], keep)
    return found


def main() -> None:
    """Compute all cells and write the file."""
    torch.set_num_threads(1)
    cells = []
    for n in COUNTS:
        for d in DIMENSIONS:
            cells.append(cell(n, d))
            ranks = [np.mean(cells[-1][key] or np.nan) for key in ("rank_fro", "rank_nuc")]
            print(n, d, cells[-1]["feasible"], *np.round(ranks, 2), cells[-1]["largest_gap"], flush=True)
    data = {
        "T": T, "seeds": SEEDS,
        "tolerance": "rank: singular values above max(1e-9, sqrt(2 gap)) of the largest",
        "cells": cells,
    }
    write(TARGET, __file__, SEED, data, packages=("cvxpy", "scs"))


if __name__ == "__main__":
    main()
