"""Make `book/data/scaling_law.json`: the sweeps of the page *A scaling law*.

Run from the root of the repository::

    python tools/scaling_law.py

It takes about a quarter of an hour on one core. Attention over n tokens costs n^2 a step, so few problems are drawn at
large n. Everything is in float64, with one thread; problem b of a sweep depends on the seed, n and b only.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from stored import FOLDER, significant, write

from attncore import preconditioning as pc

TARGET = FOLDER / "scaling_law.json"
SEED = 0
FIVE, THREE, SLOW = np.linspace(0.3, 0.15, 5), np.linspace(0.3, 0.15, 3), np.array([0.3, 0.12, 0.05])
PROBLEMS = {200: 64, 400: 48, 800: 32, 1600: 16, 3200: 8, 6400: 4}
SURFACE = {100: 32, 200: 32, 400: 24, 800: 16, 1600: 8, 3200: 4}
BIAS_PROBLEMS = 20_000
rounded = partial(significant, digits=6)


def excess(run, task):
    """Excess population loss at every record, shape (records, problems)."""
    pairs = zip(run.history.A, run.history.B, strict=True)
    return torch.stack([pc.population_loss(A, B, task.Sigma, task.M) for A, B in pairs])


def trained(factor: float, noise: float, tau: float | None = None, sign: float = 1.0):
    """Excess at the spectral start, or its negative, and after 30 steps; singular values `factor` times 0.3 to 0.15."""
    found = {}
    for n in (200, 400, 800, 1600, 3200, 6400):
        task = pc.gaussian_task(n, factor * FIVE, kappa=10, noise=noise, seed=SEED, batch=PROBLEMS[n])
        start = pc.fit(task.X, task.Y, steps=0, tau=tau)
        run = pc.fit(task.X, task.Y, init=(sign * start.A, sign * start.B), steps=30, record=[30], tol=0, tau=tau)
        found[str(n)] = rounded(excess(run, task).T)
        print("trained", factor, noise, tau, sign, n, n * np.mean(found[str(n)], 0), flush=True)
    return found


def surface(distance: float, steps: int):
    """Excess over (n, steps) from starts at `distance` from the estimated manifold, fixed step of the local rate."""
    found = {}
    for n, problems in SURFACE.items():
        task = pc.gaussian_task(n, SLOW, kappa=30, noise=0.1, seed=SEED, batch=problems)
        run = pc.fit(task.X, task.Y, init=pushed(task, distance), lr=pc.local_rate(SLOW, 3, 3).step, tau=1.0,
                     steps=steps, record=1, tol=0)
        found[str(n)] = rounded(excess(run, task))
        print("surface", n, np.mean(found[str(n)], 1), flush=True)
    return found


def pushed(task, distance: float):
    """The spectral start of each problem, moved by `distance` in a random direction of the whitened coordinates."""
    moments = pc.estimate(task.X, task.Y)
    A, B = pc.spectral_init(moments.Sigma, moments.M)
    push = np.stack([np.random.default_rng([SEED, b]).normal(size=(6, 3)) for b in range(len(A))])
    push *= distance / np.sqrt((push**2).sum((1, 2), keepdims=True))
    dA, dB = pc.unwhiten(push[:, :3], push[:, 3:], moments.Sigma)
    return A + dA, B + dB


def squared_bias(noise: float):
    """Squared bias of the spectral start's map, debiased, its standard error, and the summed variance."""
    found, M = {}, torch.diag(torch.tensor(THREE))
    for n in (100, 200, 400, 800):
        rng, maps = np.random.default_rng([SEED, n]), []
        for _ in range(BIAS_PROBLEMS // 1000):
            X, error = (torch.tensor(rng.normal(size=(1000, n, 3))) for _ in range(2))
            moments = pc.estimate(X, X @ M.T + noise * error)
            A, B = pc.spectral_init(moments.Sigma, moments.M)
            maps.append((A @ B.mT - M).flatten(1).numpy())
        maps = np.concatenate(maps)
        mean, spread = maps.mean(0), maps.var(0, ddof=1)
        bias = (mean**2).sum() - spread.sum() / len(maps)
        error = 2 * np.sqrt((mean**2 * spread).sum() / len(maps))
        found[str(n)] = rounded([bias, error, spread.sum()])
        print("bias", noise, n, n * n * bias, n * n * error, n * spread.sum(), flush=True)
    return found


def main():
    torch.set_num_threads(1)
    data = {
        "bias": {"0": squared_bias(0.0), "0.2": squared_bias(0.2)},
        "surface": surface(0.2, 40),
        "trained": trained(1.0, 0.1),
        "turned": trained(1.0, 0.1, sign=-1.0),
        "large": trained(2 / 0.3, 0.1, tau=1.0),
    }
    write(TARGET, __file__, SEED, data)


if __name__ == "__main__":
    main()
