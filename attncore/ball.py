"""Projected descent of the loss on a ball of weights, for a batch of problems.

Only the direction of the gradient and the logarithm of its norm are used, from the form that survives
saturation (:mod:`attncore.gradients`): a radius at which the loss differs from its limit by ``exp(-1000)``
is no harder than another. On the sphere the descent follows the part of the unit gradient along the sphere,
with the step lengths of Barzilai and Borwein (IMA J. Numer. Anal. 8, 1988); inside, the gradient itself.
"""

from __future__ import annotations

import math

import torch

from attncore.arrays import choose_arrays
from attncore.gradients import Objective

CHECK_EVERY = 20  # iterations between two looks at whether every problem has converged
ROUND = 200  # iterations after which problems that have converged are left out
MAX_TURN = 0.2  # radians by which a step may turn the weights


class Ball:
    """Problems, weights and the ball ``sum |M|_F^2 <= rho^2`` they are confined to.

    Parameters
    ----------
    tokens : tuple
        ``(X, z, y, v)``, each with one batch axis.
    batch : tuple of int
        Leading axes as the head sees them.
    kind : FullWeights or FactoredWeights
    start : list of tensors, each (B, d, m)
    head, loss : resolved, as in :func:`attncore.training.train`
    tol : float
    """

    def __init__(self, tokens, batch, kind, start, head, loss, tol):
        X, z, y, v = self.tokens = tokens
        self.kind, self.head, self.loss, self.tol, self.rho = kind, head, loss, tol, math.nan
        self.arrays = choose_arrays(X, z, start[0].shape[-1])
        self.xp = self.arrays.xp
        self.weights = kind(self.arrays, start)
        self.objective = Objective(self.arrays, y, v, batch, head, loss, "exact")

    def restart(self, matrices) -> None:
        """Take other weights, given as tensors (B, d, m)."""
        self.weights.matrices = [self.arrays.array(M) for M in matrices]

    def state(self) -> list[torch.Tensor]:
        """The mean loss (B,) and the weights, as tensors."""
        return [self.objective.value(self.weights.logits()), *map(self.arrays.tensor, self.weights.matrices)]

    def scale_to(self, rho: float) -> None:
        """Go to the sphere of radius `rho` along the present weights, or along -gradient from zero."""
        self.rho, M, xp = rho, self.weights.matrices, self.xp
        zero = (self._length(M) == 0)[:, None, None]
        M = [xp.where(zero, -g, m) for g, m in zip(self._slope()[0], M, strict=True)]
        length = self._length(M)
        self.weights.matrices = self._times(rho / (length + (length == 0)), M)

    def minimise(self, max_iter: int):
        """Descend until every problem is stationary to `tol`; return (acts, residual) as tensors.

        After some iterations those that have converged are left out. (A head that is not linear may hold
        weights for each problem, which only it knows how to select: then all go on together.)
        """
        first = min(max_iter, ROUND) if self.head.linear else max_iter
        acts, residual = map(self.arrays.tensor, self._descend(first))
        pending = residual > self.tol
        if first < max_iter and bool(pending.any()):
            rest = self._subset(pending)
            acts[pending], residual[pending] = rest.minimise(max_iter - first)
            for M, part in zip(self.weights.matrices, rest.weights.matrices, strict=True):
                self.arrays.tensor(M)[pending] = rest.arrays.tensor(part)
        return acts, residual

    def _subset(self, mask):
        start = [self.arrays.tensor(M)[mask] for M in self.weights.matrices]
        tokens = tuple(a[mask] for a in self.tokens)
        rest = Ball(tokens, (len(start[0]),), self.kind, start, self.head, self.loss, self.tol)
        rest.rho = self.rho
        return rest

    def _inner(self, A, B):
        return sum(self.arrays.inner(a, b) for a, b in zip(A, B, strict=True))

    def _length(self, A):
        return self.xp.sqrt(self._inner(A, A))

    @staticmethod
    def _times(factor, A):
        return [factor[:, None, None] * a for a in A]

    def _slope(self):
        """Unit gradient and the logarithm of its norm (a zero gradient stays zero, with -inf)."""
        mantissa, log_scale, _ = self.objective.gradient(self.weights.logits())
        G = self.weights.gradients(mantissa)
        norm = self._length(G)
        safe = norm + (norm == 0)
        return self._times(1 / safe, G), self.xp.where(norm == 0, -math.inf, log_scale + self.xp.log(safe))

    def _look(self, unit=None, acted=False):
        """Descent direction, whether the constraint acts, residual, and the unit of gradients inside.

        Inside the ball a gradient counts relative to its norm where the descent entered.
        """
        xp, M = self.xp, self.weights.matrices
        G, log_norm = self._slope()
        outward = -self._inner(G, M) / self.rho
        acts = (self._length(M) > self.rho * (1 - 1e-9)) & (outward > 0)
        unit = log_norm if unit is None else xp.where(acts | acted, log_norm, unit)
        size = xp.where(acts, 1.0, xp.where(xp.isinf(log_norm), 0.0, xp.exp(log_norm - unit)))
        D = [g + a for g, a in zip(G, self._times(xp.where(acts, outward / self.rho, 0.0), M), strict=True)]
        D = self._times(size, D)
        return D, acts, self._length(D), unit

    def _descend(self, max_iter):
        D, acts, residual, unit = self._look()
        eta = self.xp.full_like(residual, 0.1 * self.rho)
        for iteration in range(max_iter):
            if iteration % CHECK_EVERY == 0 and bool((residual <= self.tol).all()):
                break
            before, M = (D, acts), self.weights.matrices
            self._move(self.xp.where(residual > self.tol, eta, 0.0), D, acts)
            D, acts, residual, unit = self._look(unit, acts)
            eta = self._step_length(M, before, D, acts, residual, eta)
        return acts, residual

    def _move(self, eta, D, acts):
        """Step and project: onto the sphere where the constraint acts, onto the ball elsewhere."""
        old = self.weights.matrices
        M = [m - s for m, s in zip(old, self._times(eta, D), strict=True)]
        length = self._length(M)
        shrink = self.rho / self.xp.where(length == 0, self.rho, length)
        M = self._times(self.xp.where(acts | (shrink < 1), shrink, 1.0), M)
        still = (eta == 0)[:, None, None]
        self.weights.matrices = [self.xp.where(still, a, b) for a, b in zip(old, M, strict=True)]

    def _step_length(self, M, before, D, acts, residual, eta):
        """Barzilai-Borwein steps, the shorter where the two differ much; afresh after a change of side."""
        xp = self.xp
        s = [new - old for new, old in zip(self.weights.matrices, M, strict=True)]
        y = [new - old for new, old in zip(D, before[0], strict=True)]
        ss, sy, yy = self._inner(s, s), self._inner(s, y), self._inner(y, y)
        convex = sy > 0
        longer = ss / xp.where(convex, sy, 1.0)
        shorter = sy / xp.where(yy > 0, yy, 1.0)
        step = xp.where(convex, xp.where(shorter < 0.2 * longer, shorter, longer), 4 * eta)
        step = xp.where(acts == before[1], step, 0.1 * self.rho)
        return xp.minimum(step.clip(min=1e-12 * self.rho), MAX_TURN * self.rho / (residual + MAX_TURN))
