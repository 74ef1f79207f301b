"""The referee: attention SVMs through cvxpy, independent of the solvers written here, and slower."""

from __future__ import annotations

import numpy as np

from attncore.svm.constraints import Constraints
from attncore.svm.infeasibility import reduce


def solve_reference(rows: Constraints, b: int, norm: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Solve problem b through cvxpy: ``(W (d, d), weights (n, T-1))``, or None when its solvers fail.

    The accuracy is whatever the conic solver reaches; the caller is expected to certify it.

    Raises
    ------
    ImportError
        If cvxpy is not installed, naming the extra that has it.
    """
    try:
        import cvxpy as cp
    except ImportError:
        raise ImportError('the referee needs cvxpy: pip install "attncore[book]"') from None
    u, z, left, right = reduce(rows, b)
    n, S = rows.u.shape[1:3]
    size = rows.row_norms()[b].reshape(-1)
    unit = size.min()
    matrices = u[:, :, None] * np.repeat(z, S, axis=0)[:, None, :] / size[:, None, None]
    W = cp.Variable((u.shape[1], z.shape[1]))
    margins = matrices.reshape(n * S, -1) @ cp.vec(W, order="C") >= unit / size
    objective = cp.sum_squares(W) / 2 if norm == "fro" else cp.normNuc(W)
    problem = cp.Problem(cp.Minimize(objective), [margins])
    try:
        problem.solve(solver=cp.CLARABEL)
    except cp.SolverError:
        return None
    if W.value is None or margins.dual_value is None:
        return None
    weights = np.maximum(0.0, np.asarray(margins.dual_value)) / size / (unit if norm == "fro" else 1.0)
    return left @ (W.value / unit) @ right.T, weights.reshape(n, S)
