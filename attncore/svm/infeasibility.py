"""Farkas certificates: weights that prove that no W separates the selected tokens."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from attncore.svm.constraints import Constraints

RESIDUAL = 1e-12


def reduce(rows: Constraints, b: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates of problem b in span(differences) x span(queries), where every minimiser lives.

    Returns ``u (n (T-1), p)``, ``z (n, q)`` and orthonormal bases ``left (d, p)``, ``right (d, q)`` such that
    the rows are ``left @ (u z^T) @ right.T`` and ``W = left @ C @ right.T``.
    """

    def coordinates(vectors):
        if len(vectors) >= vectors.shape[1]:
            return vectors, np.eye(vectors.shape[1])
        basis, triangle = np.linalg.qr(vectors.T)
        return triangle.T, basis

    u, left = coordinates(rows.u[b].reshape(-1, rows.u.shape[-1]))
    z, right = coordinates(rows.z[b])
    return u, z, left, right


def unit_rows(rows: Constraints, b: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of problem b in reduced coordinates, each of Frobenius norm 1, and their original norms."""
    u, z, _, _ = reduce(rows, b)
    z = np.repeat(z, rows.u.shape[2], axis=0)
    lu, lz = np.linalg.norm(u, axis=1), np.linalg.norm(z, axis=1)
    matrices = (u / lu[:, None])[:, :, None] * (z / lz[:, None])[:, None, :]
    return matrices.reshape(len(u), -1), lu * lz


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
    A, length = unit_rows(rows, b)
    weights = least_squares(A, np.ones(len(A)))
    if weights is None or np.linalg.norm(A.T @ weights) > RESIDUAL * weights.sum():
        return None
    weights /= length
    return (weights / weights.sum()).reshape(shape)


def nearest_point(rows: Constraints, b: int) -> np.ndarray | None:
    """Dual row weights (n, T-1), up to scale, by non-negative least squares: slow, for the worst conditioned.

    The same problem as in `farkas` with the true bounds: ``A^T weights`` is then along the minimiser.
    """
    A, length = unit_rows(rows, b)
    weights = least_squares(A, length.min() / length)
    return None if weights is None else (weights / length).reshape(rows.u.shape[1:3])


def least_squares(A: np.ndarray, bound: np.ndarray) -> np.ndarray | None:
    """Minimise ``|A^T lam|^2 + (bound^T lam - 1)^2`` over ``lam >= 0``; None when that fails or gives 0."""
    target = np.zeros(A.shape[1] + 1)
    target[-1] = 1.0
    try:
        weights, _ = nnls(np.vstack([A.T, bound]), target, maxiter=30 * len(A))
    except RuntimeError:
        return None
    return weights if weights.sum() > 0 else None
