r"""A primal-dual interior point method for nuclear-norm attention SVMs, many problems at once.

With :math:`|W|_* = \min \tfrac12(\mathrm{tr} P + \mathrm{tr} Q)` over :math:`X = \binom{P\ W}{W^T Q} \succeq 0` the
problem and its dual are

.. math:: \min \tfrac12 \mathrm{tr} X,\quad u^T W z - s = b,\ s \ge 0, \qquad
    \max b^T\lambda,\quad Z = \tfrac12\begin{pmatrix} I & -S \\ -S^T & I\end{pmatrix} \succeq 0,\
    S = \sum \lambda u z^T,\ \lambda \ge 0.

The diagonal blocks of X are free, so that a step costs one Cholesky factor of order m, the number of rows. The
direction is that of Helmberg, Rendl, Vanderbei and Wolkowicz (*SIAM J. Optim.* 6 (1996) 342-361) with Mehrotra's
corrector. Rows marked `free` are equations: they have no slack, and their multiplier has no sign.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs


@dataclass(frozen=True)
class Program:
    """B problems ``u[k]^T W z[k // S] >= b[k]`` (``=`` where free).

    ``u (B, m, p)``, ``z (B, n, q)`` with m = n S; ``b (B, m)``; ``free (B, m)`` bool.
    """

    u: np.ndarray
    z: np.ndarray
    b: np.ndarray
    free: np.ndarray

    def __len__(self) -> int:
        return len(self.u)

    def __getitem__(self, index) -> Program:
        return Program(self.u[index], self.z[index], self.b[index], self.free[index])

    def margins(self, W: np.ndarray) -> np.ndarray:
        """``u^T W z`` as (B, m)."""
        B, m, p = self.u.shape
        u = self.u.reshape(B, self.z.shape[1], -1, p)
        return (u @ (self.z @ W.swapaxes(1, 2))[..., None]).reshape(B, m)

    def combine(self, lam: np.ndarray) -> np.ndarray:
        """``sum lam u z^T`` as (B, p, q)."""
        B, _, p = self.u.shape
        n = self.z.shape[1]
        pulled = (lam.reshape(B, n, 1, -1) @ self.u.reshape(B, n, -1, p))[:, :, 0]
        return pulled.swapaxes(1, 2) @ self.z


@dataclass(frozen=True)
class State:
    """``X (B, p + q, p + q)``, slacks ``s`` and multipliers ``lam`` (B, m), relative gaps and residuals (B,).

    The slack of a free row is 1 and takes no part.
    """

    X: np.ndarray
    s: np.ndarray
    lam: np.ndarray
    gap: np.ndarray
    stuck: np.ndarray

    def __getitem__(self, index) -> State:
        return State(*(value[index] for value in vars(self).values()))

    def put(self, index, other: State) -> None:
        """Write the problems `index` in place."""
        for name, value in vars(self).items():
            value[index] = getattr(other, name)


def start(program: Program) -> State:
    """X a multiple of the identity, W = 0, and equal multipliers well inside the dual cone.

    Bounds are expected to be scaled so that the least Frobenius norm of W is about 1.
    """
    B, m, p = program.u.shape
    size = p + program.z.shape[2]
    lam = np.where(program.free, 0.0, 1.0)
    length = np.linalg.norm(program.combine(lam), ord=2, axis=(1, 2))
    lam *= (0.5 / np.maximum(length, 0.5 / m))[:, None]
    X = np.broadcast_to(2.0 * np.eye(size), (B, size, size)).copy()
    s = np.where(program.free, 1.0, np.maximum(program.b, 0.1))
    return State(X, s, lam, np.ones(B), np.zeros(B, bool))


def advance(program: Program, state: State, target: float, steps: int) -> State:
    """Iterate the problems whose gap is above `target`, at most so many steps; they may get stuck in rounding."""
    state = replace(state, **{name: value.copy() for name, value in vars(state).items()})
    for _ in range(steps):
        left = np.flatnonzero((state.gap > target) & ~state.stuck)
        if not left.size:
            break
        whole = left.size == len(program)
        try:
            new = _step(program if whole else program[left], state if whole else state[left])
        except np.linalg.LinAlgError:
            # Some problem of the batch has reached the boundary: find out which.
            if left.size == 1:
                state.stuck[left] = True
                continue
            for k in left:
                state.put(slice(k, k + 1), advance(program[k : k + 1], state[k : k + 1], target, 1))
            continue
        worse = ~np.isfinite(new.gap) | ((state.gap[left] < 1e-8) & (new.gap > state.gap[left]))
        state.put(left[~worse], new[~worse])
        state.stuck[left[worse]] = True
    return state


def _step(program: Program, state: State) -> State:
    """One predictor-corrector step of every problem."""
    newton = _Newton.of(program, state)
    zero = np.zeros(len(program))
    affine = newton.direction(zero, np.zeros_like(state.X), np.zeros_like(state.s))
    primal, dual = (np.minimum(1.0, length) for length in newton.lengths(*affine))
    sigma = np.clip(newton.complementarity(*affine, primal, dual) / newton.mu, 1e-6, 1.0) ** 2
    dX, ds, dlam, dZ = affine
    second = dX @ dZ @ newton.Y
    second = (second + second.swapaxes(1, 2)) / 2
    dX, ds, dlam, dZ = step = newton.direction(sigma * newton.mu, second, ds * dlam)
    primal, dual = newton.lengths(*step)
    shrink = 0.9 + 0.09 * np.minimum(1.0, np.minimum(primal, dual))
    primal, dual = np.minimum(1.0, shrink * primal), np.minimum(1.0, shrink * dual)
    X, s, lam = state.X + primal[:, None, None] * dX, state.s + primal[:, None] * ds, state.lam + dual[:, None] * dlam
    value, bound = np.trace(X, axis1=1, axis2=2) / 2, (program.b * lam).sum(1)
    gap = np.maximum(np.abs(value - bound) / np.abs(value), 1.0 - primal)
    return State((X + X.swapaxes(1, 2)) / 2, s, lam, gap, state.stuck)


@dataclass(frozen=True)
class _Newton:
    """What the predictor and the corrector of one step share; ``Y = Z^-1``, ``inverse = 1 / lam`` or 0."""

    program: Program
    state: State
    Z: np.ndarray
    Y: np.ndarray
    roots: tuple[np.ndarray, np.ndarray]
    inverse: np.ndarray
    pulled: np.ndarray
    factors: list
    count: np.ndarray
    mu: np.ndarray

    @classmethod
    def of(cls, program: Program, state: State) -> _Newton:
        X, s, lam, kept = state.X, state.s, state.lam, ~program.free
        p = program.u.shape[2]
        Z = _bordered(program.combine(lam), 0.5)
        root_x, root_z = np.linalg.inv(np.linalg.cholesky(X)), np.linalg.inv(np.linalg.cholesky(Z))
        Y = root_z.swapaxes(1, 2) @ root_z
        inverse = np.divide(1.0, lam, out=np.zeros_like(lam), where=kept)
        count = X.shape[1] + kept.sum(1)
        mu = (np.einsum("bij,bij->b", X, Z) + (s * lam * kept).sum(1)) / count
        factors = _factor(program, X, Y, s * inverse)
        return cls(program, state, Z, Y, (root_x, root_z), inverse, program.margins(Y[:, :p, p:]), factors, count, mu)

    def direction(self, centre, second, product):
        """``dX, ds, dlam, dZ`` towards ``X Z = centre I``, given the second-order terms of the predictor."""
        p, s, inverse = self.program.u.shape[2], self.state.s, self.inverse
        centre = centre[:, None]
        right = self.program.b + self.program.margins(second[:, :p, p:])
        right += centre * (inverse - self.pulled) - product * inverse
        dlam = np.stack([dpotrs(factor, row, lower=1)[0] for factor, row in zip(self.factors, right, strict=True)])
        dZ = _bordered(self.program.combine(dlam), 0.0)
        half = self.state.X @ dZ @ self.Y
        dX = centre[..., None] * self.Y - self.state.X - (half + half.swapaxes(1, 2)) / 2 - second
        ds = inverse * (centre - product - s * dlam) - s
        return dX, np.where(self.program.free, 0.0, ds), dlam, dZ

    def lengths(self, dX, ds, dlam, dZ):
        """The longest primal and dual steps within the cones."""
        kept = ~self.program.free
        return [_longest(self.roots[0], dX, self.state.s, ds, kept),
                _longest(self.roots[1], dZ, self.state.lam, dlam, kept)]

    def complementarity(self, dX, ds, dlam, dZ, primal, dual):
        """Mean complementarity after a step."""
        X, Z = self.state.X + primal[:, None, None] * dX, self.Z + dual[:, None, None] * dZ
        s, lam = self.state.s + primal[:, None] * ds, self.state.lam + dual[:, None] * dlam
        return (np.einsum("bij,bij->b", X, Z) + (s * lam * ~self.program.free).sum(1)) / self.count


def _bordered(S: np.ndarray, diagonal: float) -> np.ndarray:
    """``diagonal I - (0, S; S^T, 0) / 2``."""
    B, p, q = S.shape
    Z = np.zeros((B, p + q, p + q))
    Z[:, :p, p:] = S * -0.5
    Z[:, p:, :p] = Z[:, :p, p:].swapaxes(1, 2)
    index = np.arange(p + q)
    Z[:, index, index] = diagonal
    return Z


def _factor(program: Program, X, Y, diagonal) -> list:
    """Cholesky factors of ``M + diag(s / lam)``, ``M[k, l] = tr(A_k X A_l Y)``, ``A = (u z^T + z u^T) / 2``."""
    u, z = program.u, program.z
    B, m, p = u.shape
    n = z.shape[1]
    blocks, ut, zt = (B, n, m // n, n, m // n), u.swapaxes(1, 2), z.swapaxes(1, 2)
    M = (u @ Y[:, :p, :p] @ ut).reshape(blocks)
    M *= (z @ X[:, p:, p:] @ zt)[:, :, None, :, None]
    other = (u @ X[:, :p, :p] @ ut).reshape(blocks)
    other *= (z @ Y[:, p:, p:] @ zt)[:, :, None, :, None]
    M += other
    F = (u @ X[:, :p, p:] @ zt).reshape(blocks[:4])
    G = (u @ Y[:, :p, p:] @ zt).reshape(blocks[:4])
    np.multiply(G[..., None], F.transpose(0, 3, 1, 2)[:, :, None], out=other)
    M = M.reshape(B, m, m)
    other = other.reshape(B, m, m)
    M += other
    M += other.swapaxes(1, 2)
    M *= 0.25
    index = np.arange(m)
    M[:, index, index] = M[:, index, index] * (1 + 1e-14) + diagonal
    factors = [dpotrf(matrix.T, lower=1, overwrite_a=1) for matrix in M]
    if any(info for _, info in factors):
        raise np.linalg.LinAlgError("the Schur complement is not positive definite")
    return [factor for factor, _ in factors]


def _longest(root, matrix, x, dx, kept) -> np.ndarray:
    """Largest step a with ``R^-1 R^-T + a matrix`` positive semidefinite and ``x + a dx >= 0`` where kept."""
    least = np.linalg.eigvalsh(root @ matrix @ root.swapaxes(1, 2))[:, 0]
    ratio = np.divide(dx, x, out=np.zeros_like(x), where=kept).min(1)
    worst = np.minimum(least, ratio)
    return np.divide(-1.0, worst, out=np.full_like(worst, np.inf), where=worst < 0)
