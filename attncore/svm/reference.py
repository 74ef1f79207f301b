"""The referee: attention SVMs through cvxpy, independent of the solvers written here, and slower."""

from __future__ import annotations

import numpy as np

from attncore.svm.constraints import Constraints
from attncore.svm.quadratic import Dense


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
    dense = Dense.of(rows, b)
    W = cp.Variable((dense.left.shape[1], dense.right.shape[1]))
    margins = dense.A @ cp.vec(W, order="C") >= dense.bound
    objective = cp.sum_squares(W) / 2 if norm == "fro" else cp.normNuc(W)
    problem = cp.Problem(cp.Minimize(objective), [margins])
    try:
        problem.solve(solver=cp.CLARABEL)
    except cp.SolverError:
        return None
    if W.value is None or margins.dual_value is None:
        return None
    weights = np.maximum(0.0, np.asarray(margins.dual_value)) * dense.factor
    if norm == "nuc":
        weights *= dense.unit
    return dense.embed(W.value), weights.reshape(rows.u.shape[1:3])
