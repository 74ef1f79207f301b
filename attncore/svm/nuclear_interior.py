r"""A primal-dual interior point method for one nuclear-norm attention SVM.

With :math:`|W|_* = \min \tfrac12(\mathrm{tr} P + \mathrm{tr} Q)` over :math:`X = \binom{P\ W}{W^T Q} \succeq 0` the
problem and its dual are

.. math:: \min \tfrac12 \mathrm{tr} X,\quad u^T W z - s = b,\ s \ge 0, \qquad
    \max b^T\lambda,\quad Z = \tfrac12\begin{pmatrix} I & -S \\ -S^T & I\end{pmatrix} \succeq 0,\
    S = \sum \lambda u z^T,\ \lambda \ge 0.

The diagonal blocks of X are free, so that a step costs one Cholesky factor of order m, the number of rows. The
direction is that of Helmberg, Rendl, Vanderbei and Wolkowicz (*SIAM J. Optim.* 6 (1996) 342-361) with Mehrotra's
corrector. Rows marked `free` are equations: they have no slack, and their multiplier has no sign.

Problems are small and many: the cost is in the calls more than in the arithmetic. One at a time through LAPACK is
as fast as all at once through numpy's stacked routines, and each stops when it is done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dsyevd, dtrtri


@dataclass(frozen=True)
class Program:
    """``u[k]^T W z[k // S] >= b[k]`` (``=`` where free): ``u (m, p)``, ``z (n, q)``, m = n S, ``b``, ``free (m,)``.

    Rows and bounds are expected to be scaled so that the least Frobenius norm of W is about 1.
    """

    u: np.ndarray
    z: np.ndarray
    b: np.ndarray
    free: np.ndarray

    def margins(self, W: np.ndarray) -> np.ndarray:
        """``u^T W z`` as (m,)."""
        u = self.u.reshape(len(self.z), -1, self.u.shape[1])
        return (u @ (self.z @ W.T)[:, :, None]).reshape(-1)

    def combine(self, lam: np.ndarray) -> np.ndarray:
        """``sum lam u z^T`` as (p, q)."""
        n = len(self.z)
        u = self.u.reshape(n, -1, self.u.shape[1])
        return (lam.reshape(n, 1, -1) @ u)[:, 0].T @ self.z


class Interior:
    """Iterates ``X (p + q, p + q)``, slacks ``s`` (1 where free), multipliers ``lam``; `gap` relative, `stuck` or not.

    `gap` is the larger of the relative duality gap and the primal residual. The start is near ``W (p, q)``, of
    margins at least b.
    """

    def __init__(self, program: Program, W: np.ndarray):
        self.program = program
        self.kept = ~program.free
        left, values, right = np.linalg.svd(1.2 * W, full_matrices=False)
        corner = np.block([[(left * values) @ left.T, 1.2 * W], [1.2 * W.T, (right.T * values) @ right]])
        size = len(corner)
        self.X = corner + 0.15 * np.eye(size)
        self.s = np.where(self.kept, np.maximum(1.2 * program.margins(W) - program.b, 0.1), 1.0)
        self.lam = self.kept.astype(float)
        self.S = program.combine(self.lam)
        length = np.sqrt(np.linalg.eigvalsh(self.S.T @ self.S)[-1].clip(0.0))
        shrink = 0.8 / max(length, 0.8 / len(self.lam))
        self.lam, self.S = shrink * self.lam, shrink * self.S
        self.count = size + int(self.kept.sum())
        self.gap, self.stuck = 1.0, False

    @property
    def W(self) -> np.ndarray:
        p = self.program.u.shape[1]
        return self.X[:p, p:]

    def step(self) -> None:
        """One predictor-corrector step; where rounding prevents it, nothing but `stuck` changes."""
        try:
            X, s, lam, S, gap = self._moved()
        except np.linalg.LinAlgError:
            self.stuck = True
            return
        if not np.isfinite(gap) or (self.gap < 1e-8 and gap > self.gap):
            self.stuck = True
            return
        self.X, self.s, self.lam, self.S, self.gap = X, s, lam, S, gap

    def _moved(self):
        program, X, s, lam, b = self.program, self.X, self.s, self.lam, self.program.b
        p = program.u.shape[1]
        if min(s[self.kept].min(initial=1.0), lam[self.kept].min(initial=1.0)) <= 0:
            raise np.linalg.LinAlgError("a slack has vanished in rounding")
        Z = _bordered(self.S, 0.5)
        root_x, root_z = _inverse_root(X), _inverse_root(Z)
        Y = root_z.T @ root_z
        inverse = np.divide(1.0, lam, out=np.zeros_like(lam), where=self.kept)
        mu = (np.vdot(X, Z) + np.vdot(s[self.kept], lam[self.kept])) / self.count
        # A row of zeros (an equation that others imply) gets a diagonal entry, which keeps its multiplier at 0.
        factor = _factor(program, X, Y, np.where(program.u.any(1), s * inverse, 1.0))
        pulled = inverse - program.margins(Y[:p, p:])

        def direction(centre, second, product):
            right = b + centre * pulled - product * inverse
            if second is not None:
                right += program.margins(second[:p, p:])
            dlam = dpotrs(factor, right, lower=1)[0]
            dS = program.combine(dlam)
            dZ = _bordered(dS, 0.0)
            half = X @ dZ @ Y
            dX = centre * Y - X - (half + half.T) / 2
            if second is not None:
                dX -= second
            ds = inverse * (centre - product - s * dlam) - s
            ds[program.free] = 0.0
            return dX, ds, dlam, dS, dZ

        def lengths(dX, ds, dlam, dZ):
            return _longest(root_x, dX, s, ds, self.kept), _longest(root_z, dZ, lam, dlam, self.kept)

        dX, ds, dlam, dS, dZ = direction(0.0, None, 0.0)
        primal, dual = (min(1.0, length) for length in lengths(dX, ds, dlam, dZ))
        ahead = np.vdot(X + primal * dX, Z + dual * dZ)
        ahead += np.vdot((s + primal * ds)[self.kept], (lam + dual * dlam)[self.kept])
        sigma = min(1.0, max(1e-6, ahead / (self.count * mu))) ** 2
        half = dX @ dZ @ Y
        dX, ds, dlam, dS, dZ = direction(sigma * mu, (half + half.T) / 2, ds * dlam)
        primal, dual = lengths(dX, ds, dlam, dZ)
        shrink = 0.9 + 0.09 * min(1.0, primal, dual)
        primal, dual = min(1.0, shrink * primal), min(1.0, shrink * dual)
        X, s, lam = X + primal * dX, s + primal * ds, lam + dual * dlam
        value = X.trace() / 2
        residual = program.margins(X[:p, p:]) - b
        residual[self.kept] -= s[self.kept]
        gap = max(abs(1.0 - np.vdot(b, lam) / value), np.abs(residual).max())
        return (X + X.T) / 2, s, lam, self.S + dual * dS, gap


def _bordered(S: np.ndarray, diagonal: float) -> np.ndarray:
    """``diagonal I - (0, S; S^T, 0) / 2``."""
    p, q = S.shape
    Z = np.zeros((p + q, p + q))
    Z[:p, p:] = S * -0.5
    Z[p:, :p] = Z[:p, p:].T
    Z.flat[:: p + q + 1] = diagonal
    return Z


def _cholesky(matrix: np.ndarray) -> np.ndarray:
    """The lower factor of a symmetric matrix, which is overwritten."""
    factor, info = dpotrf(matrix.T, lower=1, overwrite_a=1)
    if info:
        raise np.linalg.LinAlgError("not positive definite")
    return factor


def _inverse_root(matrix: np.ndarray) -> np.ndarray:
    """R with ``R matrix R^T = I``."""
    return dtrtri(_cholesky(matrix.copy()), lower=1, overwrite_c=1)[0]


def _factor(program: Program, X, Y, diagonal) -> np.ndarray:
    """Cholesky factor of ``M + diag(s / lam)``, ``M[k, l] = tr(A_k X A_l Y)``, ``A = (u z^T + z u^T) / 2``."""
    u, z = program.u, program.z
    (m, p), n = u.shape, len(z)
    blocks = (n, m // n, n, m // n)
    M = (u @ Y[:p, :p] @ u.T).reshape(blocks)
    M *= (z @ X[p:, p:] @ z.T)[:, None, :, None]
    other = (u @ X[:p, :p] @ u.T).reshape(blocks)
    other *= (z @ Y[p:, p:] @ z.T)[:, None, :, None]
    M += other
    F, G = (u @ X[:p, p:] @ z.T).reshape(blocks[:3]), (u @ Y[:p, p:] @ z.T).reshape(blocks[:3])
    np.multiply(G[..., None], F.transpose(2, 0, 1)[:, None], out=other)
    M, other = M.reshape(m, m), other.reshape(m, m)
    M += other
    M += other.T
    M *= 0.25
    M.flat[:: m + 1] = M.flat[:: m + 1] * (1 + 1e-14) + diagonal
    return _cholesky(M)


def _longest(root, matrix, x, dx, kept) -> float:
    """Largest step a with ``R^-1 R^-T + a matrix`` positive semidefinite and ``x + a dx >= 0`` where kept."""
    least = dsyevd(root @ matrix @ root.T, compute_v=0, overwrite_a=1)[0][0]
    worst = min(least, (dx[kept] / x[kept]).min(initial=0.0))
    return -1.0 / worst if worst < 0 else np.inf
