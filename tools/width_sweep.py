"""Make `book/data/width.json`: the sweeps of the page *Why width helps*.

Run from the root of the repository::

    python tools/width_sweep.py

It takes some five minutes on one core, and may be stopped at any time: finished cells are kept in
`_build/width.partial.json`, and the next start goes on from there. Tokens, queries and heads are uniform on the unit
sphere, labels are fair; problem b of a cell depends on the seed, the cell and b only.
"""

from __future__ import annotations

import itertools
import json

import numpy as np
import torch
from stored import FOLDER, write

from attncore.data import TokenSelection, token_selection
from attncore.svm import Status, Verdict, attention_svm, local_optimality
from attncore.training import train

TARGET, PARTIAL = FOLDER / "width.json", FOLDER.parents[1] / "_build" / "width.partial.json"
SEED = 0
FEASIBLE = {"n": [2, 4, 6, 8, 12, 16], "T": [2, 4, 8, 16, 32], "d": list(range(2, 12)), "draws": 600}
GLOBAL = {"n": [2, 4, 8], "T": [3, 6, 12], "d": [2, 4, 8, 16, 32], "draws": 400, "steps": 2000, "lr": 0.1}
TRAPS = {"n": [3], "T": [4], "d": [2, 3, 4, 6, 8, 12, 16, 24, 32], "draws": 400, "steps": 2000, "lr": 0.1}


def problems(n: int, T: int, d: int, draws: int) -> TokenSelection:
    """The problems of a cell."""
    return token_selection(n, T, d, seed=SEED + 10_000 * n + 100 * T + d, batch=draws)


def decided(prob: TokenSelection, tokens: torch.Tensor) -> list[int]:
    """How many are certified feasible (positive margins) and infeasible (Farkas weights)."""
    found = attention_svm(prob.X, prob.z, tokens)
    return [int((found.gap < 1).sum()), int((found.status == Status.INFEASIBLE).sum())]


def feasibility(n: int, T: int, d: int) -> dict:
    """Feasibility at the optimal tokens and at tokens drawn at random."""
    prob = problems(n, T, d, FEASIBLE["draws"])
    drawn = np.random.default_rng([SEED, n, T, d]).integers(0, T, prob.optimal.shape)
    return {"optimal": decided(prob, prob.optimal), "random": decided(prob, torch.tensor(drawn))}


def selected(prob: TokenSelection, settings: dict):
    """Tokens of largest attention at the end of normalised descent from zero, and which runs have saturated."""
    run = train(prob, steps=settings["steps"], lr=settings["lr"], record=settings["steps"])
    return run.attention.argmax(-1), run.saturated >= 0


def selection(n: int, T: int, d: int) -> dict:
    """How many runs select the optimal token in every sequence."""
    prob = problems(n, T, d, GLOBAL["draws"])
    tokens, saturated = selected(prob, GLOBAL)
    return {"global": int((tokens == prob.optimal).all(-1).sum()), "saturated": int(saturated.sum())}


def traps(n: int, T: int, d: int) -> dict:
    """Locally optimal choices of each problem besides the optimal one, all T^n tried; what descent selects."""
    prob = problems(n, T, d, TRAPS["draws"])
    choices = torch.tensor(list(itertools.product(range(T), repeat=n)))
    others, supported = [], 0
    for b in range(TRAPS["draws"]):
        one = prob[b]
        found = local_optimality(one.X.expand(len(choices), n, T, d), one.z.expand(len(choices), n, d),
                                 one.scores.expand(len(choices), n, T), choices)
        others.append(int((found.verdict == Verdict.LOCAL).sum()))
        at_best = found.support[(choices == one.optimal).all(-1)]
        supported += int(at_best.sum()) == n * (T - 1)
    tokens, _ = selected(prob, TRAPS)
    return {"traps": others, "all support": supported,
            "global": (tokens == prob.optimal).all(-1).int().tolist()}


SWEEPS = {"feasible": (FEASIBLE, feasibility), "global": (GLOBAL, selection), "traps": (TRAPS, traps)}


def finished() -> dict:
    """Cells of an earlier run with the same settings."""
    rows = json.loads(PARTIAL.read_text("utf8")) if PARTIAL.exists() else []
    return {tuple(key): cell for key, settings, cell in rows if settings == SWEEPS[key[0]][0]}


def keep(done: dict) -> None:
    """Write what is finished; a stop in the middle leaves the file before it."""
    rows = [[key, SWEEPS[key[0]][0], cell] for key, cell in done.items()]
    PARTIAL.parent.mkdir(exist_ok=True)
    fresh = PARTIAL.with_suffix(".new")
    fresh.write_text(json.dumps(rows), "utf8")
    fresh.replace(PARTIAL)


def main() -> None:
    """Compute what is missing, cell by cell, and write the file."""
    torch.set_num_threads(1)
    done = finished()
    for name, (settings, compute) in SWEEPS.items():
        for n, T, d in itertools.product(settings["n"], settings["T"], settings["d"]):
            if (name, n, T, d) in done:
                continue
            cell = done[name, n, T, d] = compute(n, T, d)
            keep(done)
            print(name, n, T, d, {k: v if name != "traps" else np.mean(v) for k, v in cell.items()}, flush=True)
    data = {}
    for name, (settings, _) in SWEEPS.items():
        grid = itertools.product(settings["n"], settings["T"], settings["d"])
        data[name] = settings | {"cells": [{"n": n, "T": T, "d": d} | done[name, n, T, d] for n, T, d in grid]}
    write(TARGET, __file__, SEED, data)
    PARTIAL.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
