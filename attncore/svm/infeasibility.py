"""Farkas certificates: weights that prove that no W separates the selected tokens."""

from __future__ import annotations

import numpy as np

from attncore.svm.constraints import Constraints
from attncore.svm.quadratic import Dense, least_squares

RESIDUAL = 1e-12


def farkas(rows: Constraints, b: int) -> np.ndarray | None:
    r"""Row weights (n, T-1) with ``sum weights u z^T = 0``, summing to one, or None when none were found.

    Solves the non-negative least squares problem :math:`\min |A^T\lambda|^2 + (1^T\lambda - 1)^2` over
    :math:`\lambda \ge 0` for rows of unit norm. Its minimum is :math:`\delta^2/(1+\delta^2)` with
    :math:`\delta` the distance from 0 to the convex hull of the rows: zero exactly when infeasible.
    """
    shape, size = rows.u.shape[1:3], rows.row_norms()[b]
    if not size.min() > 0:
        weights = np.zeros(size.size)
        weights[size.argmin()] = 1.0
        return weights.reshape(shape)
    dense = Dense.of(rows, b)
    lam = farkas_of(dense.A)
    if lam is None:
        return None
    weights = lam * dense.bound
    return (weights / weights.sum()).reshape(shape)


def farkas_of(A: np.ndarray) -> np.ndarray | None:
    """Weights >= 0 that combine the unit rows of A to zero, up to a relative residual of 1e-12, or None."""
    lam = least_squares(A, np.ones(len(A)))
    if lam is None or np.linalg.norm(lam @ A) > RESIDUAL * lam.sum():
        return None
    return lam
