r"""Large Frobenius attention SVMs without the Gram matrix.

The dual :math:`\min_{\lambda \ge 0} \tfrac12 \lambda^T G \lambda - b^T\lambda` has one variable per row and a
Gram matrix :math:`G` of :math:`(n(T-1))^2` entries that is never formed: :math:`G\lambda` is the margins of
:math:`\sum \lambda_{it} u_{it} z_i^T`. Three stages:

1. a few accelerated projected gradient steps guess which rows are active;
2. a primal-dual active set method corrects the guess: solve :math:`G_{AA}\lambda_A = b_A`, drop the rows with
   negative weight, add the violated ones. The systems go to conjugate gradients, preconditioned by the exact
   inverse of the diagonal block of each sequence, in float32;
3. when the set has settled, float64 residuals refine the solution and the set.

The active set method is not guaranteed to settle (repeated queries, dependent rows). Then `newton.py` takes over.
Nothing here is trusted: the caller certifies the answer by its duality gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attncore.svm.first_order import accelerated

FIRST_ORDER_STEPS = 15
ROUNDS = 40
TOLERANCE = (1e-2, 1e-3, 1e-5)


@dataclass(frozen=True)
class Operator:
    """``lam (n, S) -> margins`` of ``sum lam[i, s] u[i, s] z[i]^T``, through Z Z^T or W, whichever is smaller."""

    u: np.ndarray
    z: np.ndarray
    gram: np.ndarray | None

    @classmethod
    def of(cls, u: np.ndarray, z: np.ndarray) -> Operator:
        n, d = z.shape
        return cls(u, z, z @ z.T if n <= 2 * d else None)

    def astype(self, dtype) -> Operator:
        gram = None if self.gram is None else self.gram.astype(dtype)
        return Operator(self.u.astype(dtype), self.z.astype(dtype), gram)

    def on(self, u: np.ndarray) -> Operator:
        """The same queries with other differences."""
        return Operator(u, self.z, self.gram)

    def combine(self, lam: np.ndarray) -> np.ndarray:
        """``sum lam[i, s] u[i, s] z[i]^T`` as (d, d)."""
        return (lam[:, None, :] @ self.u)[:, 0].T @ self.z

    def margins(self, W: np.ndarray) -> np.ndarray:
        """Margins (n, S) of W."""
        return (self.u @ (self.z @ W.T)[:, :, None])[..., 0]

    def __call__(self, lam: np.ndarray) -> np.ndarray:
        pulled = (lam[:, None, :] @ self.u)[:, 0]
        spread = self.z @ (pulled.T @ self.z).T if self.gram is None else self.gram @ pulled
        return (self.u @ spread[:, :, None])[..., 0]


def matrix_free(full: Operator, b: np.ndarray) -> np.ndarray:
    """Dual weights ``lam (n, S) >= 0`` for rows of unit length with bounds ``b (n, S)``.

    Not finite where the iteration broke down.
    """
    half = full.astype(np.float32)
    flat = b.astype(np.float32).reshape(1, -1)
    with np.errstate(all="ignore"):
        guess = accelerated(lambda lam: half(lam.reshape(b.shape)).reshape(1, -1), flat, FIRST_ORDER_STEPS)
        return active_set(full, half, b, guess.reshape(b.shape))


def active_set(full: Operator, half: Operator, b, lam, rounds: int = ROUNDS, exact: bool = False) -> np.ndarray:
    """Primal-dual active set iteration from the guess `lam`; `half` is `full` in float32.

    It stops when the set no longer changes, or after `rounds`; `exact` starts with the float64 stage.
    """
    active = lam > 0
    for k in range(rounds):
        block = Block.of(half, active)
        start, target = block.gather(lam), block.gather(b)
        if exact:
            x = _refine(block, full.on(block.rows(full.u)), target, start.astype(np.float64))
        else:
            x = conjugate_gradients(block, target.astype(np.float32), start, TOLERANCE[min(k, 2)])
        lam = block.scatter(x, b.shape)
        slack = full(lam) - b if exact else half(lam) - b.astype(np.float32)
        new = np.where(active, lam > 0, slack < (-1e-12 if exact else -1e-6))
        changes = np.count_nonzero(new != active)
        if (exact and not changes) or not np.isfinite(lam).all():
            break
        exact = exact or (k >= 2 and changes <= max(2, active.sum() // 500)) or k >= rounds // 2
        active = new
    return np.maximum(lam.astype(np.float64), 0.0)


def pick(u: np.ndarray, index: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Rows ``u[i, index[i]]``, zero where the mask is False."""
    n, S, d = u.shape
    picked = u.reshape(n * S, d).take(index + S * np.arange(n)[:, None], axis=0)
    picked[~mask] = 0.0
    return picked


@dataclass(frozen=True)
class Block:
    """The active rows, padded to the same number in each sequence, with the preconditioner."""

    operator: Operator
    index: np.ndarray
    mask: np.ndarray
    inverse: np.ndarray

    @classmethod
    def of(cls, operator: Operator, active: np.ndarray, shift: float = 1e-5) -> Block:
        width = max(1, int(active.sum(1).max()))
        index = np.argsort(~active, axis=1, kind="stable")[:, :width]
        mask = np.take_along_axis(active, index, 1)
        u = pick(operator.u, index, mask)
        grams = u @ u.swapaxes(1, 2)
        diagonal = np.arange(width)
        grams[:, diagonal, diagonal] += ~mask + np.float32(shift)
        return cls(operator.on(u), index, mask, np.linalg.inv(grams))

    def gather(self, values):
        return np.take_along_axis(values, self.index, 1) * self.mask

    def rows(self, u):
        return pick(u, self.index, self.mask)

    def scatter(self, x, shape):
        out = np.zeros(shape, x.dtype)
        np.put_along_axis(out, self.index, x * self.mask, 1)
        return out

    def precondition(self, r):
        return (self.inverse @ r[..., None])[..., 0]


def conjugate_gradients(block: Block, b, x, tol, steps=100, shift=0.0):
    """Preconditioned, for ``(G_AA + shift) x = b``, until the residual is below ``tol |b|``."""
    r = b - block.operator(x) - shift * x
    p = y = block.precondition(r)
    ry, goal = np.vdot(r, y), tol * np.linalg.norm(b)
    for _ in range(steps):
        if np.linalg.norm(r) <= goal:
            break
        image = block.operator(p) + shift * p
        step = ry / np.vdot(p, image)
        x, r = x + step * p, r - step * image
        y = block.precondition(r)
        ry, previous = np.vdot(r, y), ry
        p = y + (ry / previous) * p
    return x


def _refine(block: Block, exact: Operator, b, x, steps=8):
    """Iterative refinement: float64 residuals, float32 corrections."""
    scale = np.linalg.norm(b)
    best = np.inf
    for _ in range(steps):
        r = b - exact(x)
        size = np.linalg.norm(r)
        if size <= 1e-14 * scale or not size < 0.5 * best:
            break
        best = size
        zero = np.zeros(b.shape, np.float32)
        x = x + size * conjugate_gradients(block, (r / size).astype(np.float32), zero, 1e-5)
    return x
