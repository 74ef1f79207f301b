r"""A globally convergent method for large attention SVMs on which the active set iteration does not settle.

Method of multipliers on :math:`\min \tfrac12|W|_F^2,\ AW \ge b`: with multipliers :math:`\lambda` and penalty
:math:`\sigma`, minimise

.. math:: \varphi(W) = \tfrac12 |W|_F^2 + \tfrac\sigma2 \big|(\lambda/\sigma + b - AW)_+\big|^2

then set :math:`\lambda \leftarrow \sigma(\lambda/\sigma + b - AW)_+`. The function is strongly convex and
piecewise quadratic: Newton's method with an exact line search ends after finitely many steps. By the Woodbury
identity a Newton system needs :math:`(G_{JJ} + I/\sigma)^{-1}` on the violated rows J, and the same preconditioned
conjugate gradients as in `matrix_free`. For infeasible data the increments of :math:`\lambda` tend to a Farkas
certificate. See Li, Sun, Toh, *SIAM J. Optim.* 28 (2018) 433-458, for the method on the lasso.
"""

from __future__ import annotations

import numpy as np

from attncore.svm.infeasibility import RESIDUAL
from attncore.svm.matrix_free import Block, Operator, active_set, conjugate_gradients

OUTER, INNER = 16, 20


def multipliers(u: np.ndarray, z: np.ndarray, b: np.ndarray, target: float) -> tuple[np.ndarray, bool]:
    """Weights ``lam (n, S) >= 0`` and whether they are a Farkas certificate instead of a dual solution.

    Arguments as in `matrix_free`. Stops once the relative duality gap is at most `target`, or no longer shrinks.
    """
    full = Operator.of(u, z)
    half = full.astype(np.float32)
    lam, sigma = np.zeros_like(b), 10.0
    W, margin = np.zeros((u.shape[2], z.shape[1])), np.zeros_like(b)
    best, reached = lam, np.inf
    with np.errstate(all="ignore"):
        for k in range(OUTER):
            W, margin = _minimise(full, half, b, lam, sigma, W, margin, 0.1 ** min(3 + k, 9))
            new = sigma * np.maximum(lam / sigma + b - margin, 0.0)
            ray = np.maximum(new - lam, 0.0)
            if k and np.linalg.norm(full.combine(ray)) <= RESIDUAL * ray.sum():
                return ray, True
            lam = new
            candidates = [lam, active_set(full, half, b, lam, rounds=6, exact=True)] if k >= 3 else [lam]
            gaps = [gap(full, b, candidate) for candidate in candidates]
            if k >= 8 and min(gaps) > 0.5 * reached and reached < 1:
                break
            if min(gaps) < reached:
                best, reached = candidates[int(np.argmin(gaps))], min(gaps)
            if reached <= target:
                break
            sigma = min(3 * sigma, 1e4)
    return best, False


def gap(full: Operator, b: np.ndarray, lam: np.ndarray) -> float:
    """Relative duality gap of ``W = sum lam u z^T``; 1 when W has no positive margins."""
    squared, least = np.vdot(lam, full(lam)), (full(lam) / b).min()
    found = 1.0 - np.vdot(lam, b) * least / squared
    return found if least > 0 and np.isfinite(found) else 1.0


def _minimise(full: Operator, half: Operator, b, lam, sigma, W, margin, tol):
    """Newton's method on phi from W, whose margins are `margin`, to a relative gradient of `tol`."""
    for _ in range(INNER):
        excess = lam / sigma + b - margin
        violated = excess > 0
        gradient = W - full.combine(sigma * np.maximum(excess, 0.0))
        if np.linalg.norm(gradient) <= tol * max(1.0, np.linalg.norm(W)):
            break
        block = Block.of(half, violated, max(1 / sigma, 1e-5))
        right = block.gather(full.margins(gradient))
        size = np.linalg.norm(right) or 1.0
        start = np.zeros(right.shape, np.float32)
        y = conjugate_gradients(block, (right / size).astype(np.float32), start, 1e-4, shift=np.float32(1 / sigma))
        step = full.combine(block.scatter(size * y.astype(np.float64), b.shape)) - gradient
        change = full.margins(step)
        length = _line_search(np.vdot(W, step), np.vdot(step, step), excess, change, sigma)
        W, margin = W + length * step, margin + length * change
    return W, margin


def _line_search(slope: float, curvature: float, excess, change, sigma: float) -> float:
    """Root of the increasing piecewise linear derivative of phi along the step."""

    def derivative(t):
        return slope + t * curvature - sigma * np.vdot(np.maximum(excess - t * change, 0.0), change)

    low, high = 0.0, 1.0
    start = derivative(0.0)
    if abs(derivative(1.0)) <= 0.1 * abs(start):
        return 1.0
    while derivative(high) < 0 and high < 1e6:
        low, high = high, 2 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if derivative(middle) < 0 else (low, middle)
    return high
