"""Accelerated projected gradient on the dual: a cheap guess of which constraints are active."""

from __future__ import annotations

import numpy as np


def accelerated(operator, b: np.ndarray, steps: int) -> np.ndarray:
    r"""FISTA on :math:`\min_{\lambda \ge 0} \tfrac12\lambda^T G\lambda - b^T\lambda` for B problems at once.

    ``operator`` maps ``lam (B, m)`` to ``G lam``, ``b (B, m)``. The step is one over a power-iteration estimate
    of the largest eigenvalue, which is not an upper bound: the result is a guess, not a solution. The power
    iteration starts at the all-ones vector, close to the leading one since most entries of G are positive.
    """
    v = np.ones_like(b)
    for _ in range(4):
        image = operator(v)
        length = np.sqrt(np.einsum("bm,bm->b", image, image))[:, None]
        with np.errstate(all="ignore"):
            inverse = np.sqrt(np.einsum("bm,bm->b", v, v))[:, None] / (1.05 * length)
            v = image / length
    lam = ahead = np.zeros_like(b)
    t = 1.0
    for _ in range(steps):
        new = ahead - inverse * (operator(ahead) - b)
        np.maximum(new, 0, out=new)
        t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead = new + b.dtype.type((t - 1) / t_next) * (new - lam)
        lam, t = new, t_next
    return lam
