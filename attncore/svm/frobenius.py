"""The Frobenius attention SVM: the strictly convex quadratic program ``min |W|_F^2 / 2`` under the margins."""

from __future__ import annotations

import daqp
import numpy as np

from attncore.svm.constraints import Constraints
from attncore.svm.infeasibility import unit_rows

NO_BOUND = 1e30


def dual_weights(rows: Constraints) -> np.ndarray:
    """Row weights (B, n, T-1) of the dual solution, nan where DAQP reports the problem infeasible."""
    B, n, S = rows.u.shape[:3]
    weights = np.full((B, n, S), np.nan)
    if not S:
        return weights
    for b in np.flatnonzero(rows.row_norms().reshape(B, -1).min(axis=1) > 0):
        found = _daqp_primal(*unit_rows(rows, b))
        if found is not None:
            weights[b] = found.reshape(n, S)
    return weights


def _daqp_primal(A: np.ndarray, length: np.ndarray) -> np.ndarray | None:
    """Solve ``min |w|^2/2, A w >= 1/length`` for unit rows; weights of the original rows."""
    m, p = A.shape
    bound = length.min() / length
    _, _, flag, info = daqp.solve(
        np.eye(p), np.zeros(p), A, np.full(m, NO_BOUND), bound, np.zeros(m, dtype=np.int32), primal_tol=1e-11
    )
    if flag < 1:
        return None
    return np.maximum(0.0, -info["lam"]) / length / length.min()
