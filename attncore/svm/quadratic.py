"""The quadratic program ``min |w|^2 / 2, A w >= bound`` for a matrix of unit rows, by DAQP."""

from __future__ import annotations

import daqp
import numpy as np

NO_BOUND = 1e30


def least_norm(A: np.ndarray, bound: np.ndarray) -> np.ndarray | None:
    """Multipliers of ``min |w|^2 / 2, A w >= bound``, or None when DAQP finds it infeasible."""
    m, p = A.shape
    sense = np.zeros(m, dtype=np.int32)
    _, _, flag, info = daqp.solve(
        np.eye(p), np.zeros(p), A, np.full(m, NO_BOUND), bound, sense, primal_tol=1e-13
    )
    return np.maximum(0.0, -info["lam"]) if flag > 0 else None


def lift(A: np.ndarray, bound: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """Repair rows whose bound is so far below the largest that rounding decides whether they hold.

    Adding ``eps`` times the multipliers for equal bounds raises every margin by at least ``eps``.
    """
    w = lam @ A
    excess, rounding = A @ w - bound, 1e-14 * np.linalg.norm(w)
    if not ((excess < rounding) & (1e-12 * bound < rounding)).any():
        return lam
    strict = least_norm(A, np.ones_like(bound))
    return lam if strict is None else lam + (rounding - 2 * min(0.0, excess.min())) * strict
