"""One attention SVM written out as a small quadratic program ``min |w|^2 / 2, A w >= bound``, and its solvers."""

from __future__ import annotations

from dataclasses import dataclass

import daqp
import numpy as np
from scipy.optimize import nnls

from attncore.svm.constraints import Constraints

NO_BOUND = 1e30


@dataclass(frozen=True)
class Dense:
    """One problem written out, in coordinates of span(differences) x span(queries), where every minimiser lives.

    ``A (m, p)`` rows of unit norm; ``bound (m,)`` of them, the largest 1; ``factor (m,)`` takes multipliers of
    ``min |w|^2 / 2, A w >= bound`` to dual weights of the rows as given; `embed` takes w to W.
    """

    A: np.ndarray
    bound: np.ndarray
    factor: np.ndarray
    left: np.ndarray
    right: np.ndarray
    unit: float

    @classmethod
    def of(cls, rows: Constraints, b: int) -> Dense:
        """Problem b of a batch; no row may be zero."""
        u, left = _coordinates(rows.u[b].reshape(-1, rows.u.shape[-1]))
        z, right = _coordinates(rows.z[b])
        lu, lz = np.linalg.norm(u, axis=1), np.linalg.norm(z, axis=1)
        row = np.repeat(np.arange(len(z)), rows.u.shape[2])
        A = (u / lu[:, None])[:, :, None] * (z / lz[:, None])[row, None, :]
        size = lu * lz[row]
        unit = size.min()
        return cls(A.reshape(len(u), -1), unit / size, 1.0 / (size * unit), left, right, unit)

    def embed(self, w: np.ndarray) -> np.ndarray:
        """W (d, d) from its coordinates."""
        return self.left @ w.reshape(self.left.shape[1], -1) @ self.right.T / self.unit


def _coordinates(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of the vectors in an orthonormal basis of a space that holds them, and the basis (d, k)."""
    if len(vectors) >= vectors.shape[1]:
        return vectors, np.eye(vectors.shape[1])
    basis, triangle = np.linalg.qr(vectors.T)
    return triangle.T, basis


def least_norm(A: np.ndarray, bound: np.ndarray) -> np.ndarray | None:
    """Multipliers of ``min |w|^2 / 2, A w >= bound`` by DAQP, or None when it finds the problem infeasible."""
    m, p = A.shape
    free, sense = np.full(m, NO_BOUND), np.zeros(m, dtype=np.int32)
    _, _, flag, info = daqp.solve(np.eye(p), np.zeros(p), A, free, bound, sense, primal_tol=1e-13)
    return np.maximum(0.0, -info["lam"]) if flag > 0 else None


def least_squares(A: np.ndarray, bound: np.ndarray) -> np.ndarray | None:
    """Minimise ``|A^T lam|^2 + (bound^T lam - 1)^2`` over ``lam >= 0``; None when that fails or gives 0.

    The minimum is 0 exactly when ``A w >= bound`` is infeasible; else ``A^T lam`` is along its least-norm point.
    """
    target = np.zeros(A.shape[1] + 1)
    target[-1] = 1.0
    try:
        lam, _ = nnls(np.vstack([A.T, bound]), target, maxiter=30 * len(A))
    except RuntimeError:
        return None
    return lam if lam.sum() > 0 else None


def sharpen(A: np.ndarray, bound: np.ndarray, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The point ``w = A^T lam`` and lam, improved where rounding spoils the rows.

    Two ailments. Nearly infeasible: lam is of order ``|w|^2`` and ``A^T lam`` cancels; solving the active rows
    for w does not. Bounds many orders of magnitude apart: rounding of w decides whether the small ones hold; some
    of the multipliers for equal bounds, added, lift every row. The candidate with the best margin wins.
    """
    w = lam @ A
    if (A @ w >= bound * (1 - 1e-13)).all():
        return w, lam
    active = lam > 0
    candidates = [(w, lam), (np.linalg.lstsq(A[active], bound[active], rcond=1e-15)[0], lam)]
    strict = least_norm(A, np.ones_like(bound))
    if strict is not None:
        lifted = lam + (1e-14 * np.linalg.norm(w) + 2 * (bound - A @ w).max()) * strict
        candidates.append((lifted @ A, lifted))
    return max(candidates, key=lambda pair: (A @ pair[0] / bound).min() / np.linalg.norm(pair[0]))
