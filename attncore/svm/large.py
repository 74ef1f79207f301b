"""Large Frobenius attention SVMs: the fast method first, then the sure ones."""

from __future__ import annotations

import numpy as np

from attncore.svm.infeasibility import farkas_of
from attncore.svm.matrix_free import Operator, matrix_free
from attncore.svm.newton import gap, multipliers
from attncore.svm.quadratic import least_norm

DENSE_WORK, DENSE_SIZE = 3e9, 2e7


def solve_large(u: np.ndarray, z: np.ndarray, b: np.ndarray, target: float) -> tuple[np.ndarray, bool]:
    """Weights ``lam (n, S) >= 0`` of one problem, and whether they are a Farkas certificate.

    ``u (n, S, d)`` and ``z (n, d)`` of unit length, bounds ``b (n, S)``. The matrix-free active set method is
    tried first. If its duality gap is above `target`, the data are compressed to their numerical rank; then DAQP
    solves them if they have become small, the method of multipliers otherwise.
    """
    full = Operator.of(u, z)
    lam = matrix_free(full, b)
    if np.isfinite(lam).all() and gap(full, b, lam) <= target:
        return lam, False
    u, z = _compress(u), _compress(z)
    m, p = b.size, u.shape[2] * z.shape[1]
    if m * p * min(m, p) <= DENSE_WORK and m * p <= DENSE_SIZE:
        dense, infeasible = _dense(u, z, b)
        if infeasible or gap(Operator.of(u, z), b, dense) <= target:
            return dense, infeasible
    return multipliers(u, z, b, target)


def _compress(vectors: np.ndarray) -> np.ndarray:
    """Coordinates of unit vectors (..., d) in their span, of numerical rank r: (..., r), again of unit length."""
    flat = vectors.reshape(-1, vectors.shape[-1])
    values, basis = np.linalg.eigh(flat.T @ flat)
    kept = basis[:, values > 1e-26 * len(flat)]
    if kept.shape[1] == flat.shape[1]:
        return vectors
    coordinates = vectors @ kept
    return coordinates / np.linalg.norm(coordinates, axis=-1, keepdims=True)


def _dense(u: np.ndarray, z: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, bool]:
    A = (u[..., :, None] * z[:, None, None, :]).reshape(b.size, -1)
    lam = least_norm(A, b.reshape(-1))
    if lam is not None:
        return lam.reshape(b.shape), False
    proof = farkas_of(A)
    return (np.zeros_like(b), False) if proof is None else (proof.reshape(b.shape), True)
