r"""Newton's method on the active face of a nuclear-norm attention SVM.

With :math:`W = K Q^T`, :math:`K (p, r)`, :math:`Q (q, r)`, the problem :math:`\min \tfrac12(|K|^2 + |Q|^2)` over the
tight rows has the Lagrangian conditions :math:`K = S Q`, :math:`Q = S^T K`, :math:`u^T K Q^T z = b`, where
:math:`S = \sum \lambda u z^T`. Eliminating K leaves the stationary points in (Q, lambda) of

.. math:: \tfrac12 |Q|^2 - \tfrac12 |S Q|^2 + b^T \lambda,

a system of q r + k unknowns, symmetric, and quadratically convergent from a good guess of rank and tight rows.
Rotations Q -> Q O change nothing: the Hessian is lifted along them. A solution is optimal for the nuclear norm if
moreover :math:`|S|_{op} \le 1`, :math:`\lambda \ge 0` and the other rows hold, which the caller's certificate tells.
"""

from __future__ import annotations

import numpy as np

STEPS = 12


def polish(u: np.ndarray, z: np.ndarray, b: np.ndarray, lam: np.ndarray, Q: np.ndarray):
    """Refine from a guess: tight rows ``u (k, p)``, ``z (k, q)``, ``b (k,)``, ``lam (k,)``, factor ``Q (q, r)``.

    Returns ``(W (p, q), lam (k,))`` of the smallest residual met.
    """
    r = Q.shape[1]
    gram = u @ u.T
    above = np.triu_indices(r, 1)
    best, found = np.inf, None
    for _ in range(STEPS):
        S = (u.T * lam) @ z
        K = S @ Q
        uK, zQ = u @ K, z @ Q
        residual = np.concatenate([(Q - S.T @ K).ravel(), b - np.einsum("kr,kr->k", uK, zQ)])
        size = np.abs(residual).max(initial=0.0)
        if not size < best:
            break
        settled = size > 0.5 * best or size < 1e-15
        best, found = size, (K @ Q.T, lam)
        if settled:
            break
        step = _solve(_hessian(u, z, S, Q, uK, zQ, gram, above), residual)
        if not np.isfinite(step).all():
            break
        Q, lam = Q - step[: Q.size].reshape(Q.shape), lam - step[Q.size :]
    return found


def _hessian(u, z, S, Q, uK, zQ, gram, above) -> np.ndarray:
    q, r = Q.shape
    k = len(u)
    H = np.empty((q * r + k, q * r + k))
    block = np.zeros((q, r, q, r))
    index = np.arange(r)
    block[:, index, :, index] = np.eye(q) - S.T @ S
    H[: q * r, : q * r] = block.reshape(q * r, q * r)
    if above[0].size:
        turns = np.zeros((above[0].size, q, r))
        each = np.arange(above[0].size)
        turns[each, :, above[0]] = Q[:, above[1]].T
        turns[each, :, above[1]] = -Q[:, above[0]].T
        turns = turns.reshape(-1, q * r)
        H[: q * r, : q * r] += turns.T @ turns
    cross = z[:, :, None] * uK[:, None, :] + (u @ S)[:, :, None] * zQ[:, None, :]
    H[q * r :, : q * r] = -cross.reshape(k, q * r)
    H[: q * r, q * r :] = H[q * r :, : q * r].T
    H[q * r :, q * r :] = -gram * (zQ @ zQ.T)
    return H


def _solve(H: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The least-norm solution where H is singular: the face is degenerate, or its multipliers not unique."""
    try:
        step = np.linalg.solve(H, right)
        if np.abs(step).max(initial=0.0) < 10 and np.abs(H @ step - right).max() < 1e-8 * np.abs(right).max():
            return step
    except np.linalg.LinAlgError:
        pass
    return np.linalg.lstsq(H, right, rcond=1e-9)[0]
