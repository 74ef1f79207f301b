r"""Newton's method on the active face of a nuclear-norm attention SVM.

With :math:`W = K Q^T`, :math:`K (p, r)`, :math:`Q (q, r)`, the problem :math:`\min \tfrac12(|K|^2 + |Q|^2)` over the
tight rows has the Lagrangian conditions :math:`K = S Q`, :math:`Q = S^T K`, :math:`u^T K Q^T z = b`, where
:math:`S = \sum \lambda u z^T`. Eliminating K leaves the stationary points in (Q, lambda) of

.. math:: \tfrac12 |Q|^2 - \tfrac12 |S Q|^2 + b^T \lambda,

a symmetric system of q r + k unknowns for k tight rows, on which Newton's method converges quadratically. Which rows
are tight is decided afresh before every step: those with :math:`\lambda + b - u^T W z > 0` (a primal-dual active set
method). Rotations Q -> Q O change nothing: the Hessian is lifted along them. A solution is optimal for the nuclear
norm if moreover :math:`|S|_{op} \le 1` and the other rows hold, which the caller's certificate tells.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dsysv

STEPS, PATIENCE = 16, 2


def polish(u: np.ndarray, z: np.ndarray, b: np.ndarray, free: np.ndarray, lam: np.ndarray, Q: np.ndarray):
    """Refine a guess: rows ``u (m, p)``, ``z (m, q)``, ``b``, ``free``, ``lam (m,)``, factor ``Q (q, r)``.

    Returns ``(W (p, q), lam (m,))`` of the smallest residual met.
    """
    above = np.triu_indices(Q.shape[1], 1)
    held = free & u.any(1)
    best, found, waited = np.inf, None, 0
    margin = np.einsum("mr,mr->m", u @ ((u.T * lam) @ z @ Q), z @ Q)
    for _ in range(STEPS):
        active = np.flatnonzero(held | (~free & (lam + b - margin > 0)))
        ua, za, ba, la = u[active], z[active], b[active], lam[active]
        S = (ua.T * la) @ za
        K = S @ Q
        uK, zQ = ua @ K, za @ Q
        residual = np.concatenate([(Q - S.T @ K).ravel(), ba - np.einsum("kr,kr->k", uK, zQ)])
        size = np.abs(residual).max(initial=0.0)
        if not size < 1e6:
            break
        waited = 0 if size < 0.5 * best else waited + 1
        if size < best:
            lam = np.zeros_like(lam)
            lam[active] = la
            best, found = size, (K @ Q.T, lam)
        if waited > PATIENCE or (waited and best < 1e-12) or best < 1e-15:
            break
        step = _solve(_hessian(ua, za, S, Q, uK, zQ, above), residual)
        if not np.isfinite(step).all():
            break
        Q = Q - step[: Q.size].reshape(Q.shape)
        la = la - step[Q.size :]
        lam = np.zeros_like(lam)
        lam[active] = la
        margin = np.einsum("mr,mr->m", u @ ((ua.T * la) @ za @ Q), z @ Q)
    return found


def _hessian(u, z, S, Q, uK, zQ, above) -> np.ndarray:
    (q, r), k = Q.shape, len(u)
    H = np.empty((q * r + k, q * r + k))
    block = np.zeros((q, r, q, r))
    index = np.arange(r)
    block[:, index, :, index] = np.eye(q) - S.T @ S
    block = block.reshape(q * r, q * r)
    if r > 1:
        each = np.arange(above[0].size)
        turns = np.zeros((each.size, q, r))
        turns[each, :, above[0]] = Q.T[above[1]]
        turns[each, :, above[1]] = -Q.T[above[0]]
        turns = turns.reshape(-1, q * r)
        block += turns.T @ turns
    H[: q * r, : q * r] = block
    cross = z[:, :, None] * uK[:, None, :] + (u @ S)[:, :, None] * zQ[:, None, :]
    H[q * r :, : q * r] = -cross.reshape(k, q * r)
    H[: q * r, q * r :] = H[q * r :, : q * r].T
    H[q * r :, q * r :] = -(u @ u.T) * (zQ @ zQ.T)
    return H


def _solve(H: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The least-norm solution where H is singular: the face is degenerate, or its multipliers not unique."""
    _, _, step, info = dsysv(H, right, lwork=64 * len(H))
    if info == 0 and np.abs(step).max(initial=0.0) < 10:
        if np.abs(H @ step - right).max(initial=0.0) < 1e-8 * np.abs(right).max(initial=0.0):
            return step
    return np.linalg.lstsq(H, right, rcond=1e-9)[0]
