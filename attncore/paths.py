r"""The regularisation path: minimisers of the loss over balls of growing radius.

For ``W`` the ball is ``|W|_F <= R``; for ``(K, Q)`` it is ``(|K|_F^2 + |Q|_F^2) / 2 <= R``, the nuclear-norm
ball in disguise: ``min (|K|^2 + |Q|^2) / 2`` over ``K Q^T = W`` is ``|W|_*`` when ``rank W <= m``
(arXiv 2308.16898, regularisation paths).

Only directions of gradients are used, from the form that survives saturation, so that radii at which the
loss differs from its limit by ``exp(-1000)`` are no harder than others. The step lengths are those of
Barzilai and Borwein (IMA J. Numer. Anal. 8, 1988) for the gradient along the sphere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from attncore.arrays import choose_arrays
from attncore.data import TokenSelection
from attncore.gradients import Objective, flattened
from attncore.heads import resolve_head
from attncore.losses import resolve_loss
from attncore.threads import single_thread
from attncore.validation import as_tensor, one_of, positive_int, real, short
from attncore.weights import PARAMETRIZATIONS, start_weights

CHECK_EVERY = 20  # iterations between two looks at whether every problem has converged


@dataclass(frozen=True)
class RegularizationPath:
    """What :func:`regularization_path` returns. P is the number of radii.

    Attributes
    ----------
    radii : (P,)
        In the order given.
    W : (P, ..., d, d)
        Minimisers found; ``K Q^T`` for parametrization "KQ".
    K, Q : (P, ..., d, m) or None
    loss : (P, ...)
        Mean loss there.
    boundary : (P, ...) bool
        Whether the constraint is active.
    residual : (P, ...)
        What is certified: on the boundary the sine of the angle between minus the gradient and the outward
        normal (1 if the gradient does not point outward), inside the ball the norm of the gradient. Zero
        means a Karush-Kuhn-Tucker point. The loss is not convex: no global minimum is certified.
    converged : (P, ...) bool
        ``residual <= tol``.
    """

    radii: torch.Tensor
    W: torch.Tensor
    K: torch.Tensor | None
    Q: torch.Tensor | None
    loss: torch.Tensor
    boundary: torch.Tensor
    residual: torch.Tensor
    converged: torch.Tensor


class _Ball:
    """Projected descent on the ball ``|M| <= rho`` of stacked weight matrices, all problems at once."""

    def __init__(self, weights, objective, tol, max_iter):
        self.weights, self.objective, self.tol, self.max_iter = weights, objective, tol, max_iter
        self.xp, self.rho = weights.arrays.xp, math.nan

    def _inner(self, A, B):
        return sum(self.weights.arrays.inner(a, b) for a, b in zip(A, B, strict=True))

    def _times(self, factor, A):
        return [factor[:, None, None] * a for a in A]

    def _length(self, A):
        return self.xp.sqrt(self._inner(A, A))

    def _slope(self):
        """Unit gradient and the logarithm of its norm (a zero gradient stays zero, with -inf)."""
        mantissa, log_scale, _ = self.objective.gradient(self.weights.logits())
        G = self.weights.gradients(mantissa)
        norm = self._length(G)
        safe = self.xp.where(norm == 0, 1.0, norm)
        return self._times(1 / safe, G), self.xp.where(norm == 0, -math.inf, log_scale + self.xp.log(safe))

    def scale_to(self, rho):
        """Start on the sphere of radius `rho`, along the present weights, or along -gradient at zero."""
        self.rho = rho
        M, xp = self.weights.matrices, self.xp
        downhill = [-g for g in self._slope()[0]]
        zero = (self._length(M) == 0)[:, None, None]
        M = [xp.where(zero, g, m) for g, m in zip(downhill, M, strict=True)]
        length = self._length(M)
        self.weights.matrices = self._times(rho / xp.where(length == 0, 1.0, length), M)

    def _look(self):
        """Descent direction, whether the constraint acts, residual and log gradient norm at this point."""
        xp, M = self.xp, self.weights.matrices
        G, log_norm = self._slope()
        outward = -self._inner(G, M) / self.rho
        acts = (self._length(M) > self.rho * (1 - 1e-9)) & (outward > 0)
        along = self._times(xp.where(acts, outward / self.rho, 0.0), M)
        tangent = [g + a for g, a in zip(G, along, strict=True)]
        residual = xp.where(acts, self._length(tangent), xp.exp(log_norm))
        return tangent, acts, residual, log_norm

    def minimise(self):
        """Descend until every problem is stationary to `tol`; return (acts, residual)."""
        xp = self.xp
        D, acts, residual, log_unit = self._look()
        eta = xp.full_like(residual, 0.1 * self.rho)
        for iteration in range(self.max_iter):
            if iteration % CHECK_EVERY == 0 and bool((residual <= self.tol).all()):
                break
            before, M = (D, acts), self.weights.matrices
            active = residual > self.tol
            self._move(xp.where(active, eta, 0.0), D, acts)
            D, acts, residual, log_norm = self._look()
            # Inside the ball the gradient keeps its relative size, in units of its norm where it entered.
            log_unit = xp.where(acts | before[1], log_norm, log_unit)
            D = self._times(xp.where(acts, 1.0, xp.exp(log_norm - log_unit)), D)
            eta = self._step_length(M, before, D, acts, eta)
        return acts, residual

    def _move(self, eta, D, acts):
        """Step and project: onto the sphere where the constraint acts, onto the ball elsewhere."""
        M = [m - s for m, s in zip(self.weights.matrices, self._times(eta, D), strict=True)]
        length = self._length(M)
        shrink = self.rho / self.xp.where(length == 0, self.rho, length)
        moved = self._times(self.xp.where(acts | (shrink < 1), shrink, 1.0), M)
        still = (eta == 0)[:, None, None]
        self.weights.matrices = [self.xp.where(still, m, new)
                                 for m, new in zip(self.weights.matrices, moved, strict=True)]

    def _step_length(self, M, before, D, acts, eta):
        """Barzilai-Borwein steps, the shorter where the two differ much; afresh after a change of side."""
        xp = self.xp
        s = [new - old for new, old in zip(self.weights.matrices, M, strict=True)]
        y = [new - old for new, old in zip(D, before[0], strict=True)]
        ss, sy, yy = self._inner(s, s), self._inner(s, y), self._inner(y, y)
        convex = sy > 0
        long = ss / xp.where(convex, sy, 1.0)
        short_ = sy / xp.where(yy > 0, yy, 1.0)
        step = xp.where(convex, xp.where(short_ < 0.2 * long, short_, long), 4 * eta)
        step = xp.where(acts == before[1], step, 0.1 * self.rho)
        return step.clip(1e-12 * self.rho, self.rho)


def _factor(W, m):
    """`K`, `Q` (..., d, m) with equal Gram matrices and ``K Q^T`` the best approximation of `W` of rank m."""
    U, S, Vh = torch.linalg.svd(W)
    d = W.shape[-1]
    root = S[..., :m].sqrt().unsqueeze(-2)
    pad = torch.nn.functional.pad
    return tuple(pad(basis[..., :m] * root, (0, max(0, m - d))) for basis in (U, Vh.mT))


def _directions(prob, directions):
    """Starting directions as a list of (..., d, d) tensors."""
    if directions is None:
        return []
    if not isinstance(directions, (list, tuple)):
        raise TypeError(f"directions must be a list of matrices or None, got {short(directions)}")
    return [start_weights(prob, "W", None, value, 0)[0] for value in directions]


def _radii(radii):
    values = as_tensor(radii, "radii", dtype=torch.float64, device="cpu")
    if values.ndim != 1 or not len(values):
        raise ValueError(f"radii must be a list of at least one number, got {short(radii)}")
    return [real(value, "radii", above=0.0) for value in values.tolist()]


def regularization_path(prob: TokenSelection, radii, parametrization: str = "W", m: int | None = None,
                        loss="logistic", head="linear", directions=None, seed: int = 0, tol: float = 1e-9,
                        max_iter: int = 4000) -> RegularizationPath:
    r"""Minimise the loss over balls of the given radii, each started from the solution before.

        W(R) in argmin { L(W) : |W|_F <= R },   (K, Q)(R) in argmin { L(K Q^T) : (|K|_F^2 + |Q|_F^2)/2 <= R }.

    As R grows, ``W(R)/R`` tends to the Frobenius attention-SVM direction at the optimal tokens, and
    ``K Q^T / R`` to the nuclear-norm one under ``rank <= m`` (arXiv 2308.16898; hypotheses in the course).

    Parameters
    ----------
    prob : TokenSelection
        One problem, or a batch over leading axes.
    radii : list of float
        Positive; followed in the order given, usually increasing.
    parametrization, loss, head, m, seed
        As in :func:`attncore.training.train`. `seed` draws the first direction of (K, Q); that of `W` is
        minus the gradient at zero.
    directions : list of (..., d, d), optional
        Further starting directions. The loss has local minima, and the path followed from a small radius
        may end in one: at every radius the descent is also started from these, and the lowest loss is
        kept (the smallest residual among equals). The attention-SVM solution at the optimal tokens is a
        natural choice, since the theorem speaks of global minimisers.
    tol : float
        Stationarity asked for; see :class:`RegularizationPath`.
    max_iter : int
        Steps at most for a radius and a start.

    Returns
    -------
    RegularizationPath

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value and what was expected.
    """
    if not isinstance(prob, TokenSelection):
        raise TypeError(f"prob must be a TokenSelection, got {short(prob)}")
    one_of(parametrization, "parametrization", PARAMETRIZATIONS)
    radii, starts = _radii(radii), _directions(prob, directions)
    tol, max_iter = real(tol, "tol", above=0.0), positive_int(max_iter, "max_iter")
    first = start_weights(prob, parametrization, m, None, positive_int(seed, "seed", minimum=0))
    head, loss = resolve_head(head), resolve_loss(loss)
    if parametrization == "KQ":
        starts = [_factor(W, first[0].shape[-1]) for W in starts]
    starts = [[M.reshape(-1, *M.shape[-2:]) for M in (start if parametrization == "KQ" else [start])]
              for start in starts]
    with torch.no_grad(), np.errstate(over="ignore", divide="ignore"), single_thread(prob.X):
        X, z, y, v = flattened(prob)
        arrays = choose_arrays(X, z, first[0].shape[-1])
        weights = PARAMETRIZATIONS[parametrization](arrays, [M.reshape(-1, *M.shape[-2:]) for M in first])
        objective = Objective(arrays, y, v, prob.batch, head, loss, "exact")
        ball = _Ball(weights, objective, tol, max_iter)
        rows = [_best(ball, R if parametrization == "W" else math.sqrt(2 * R), starts) for R in radii]
    return _collect(prob, radii, rows, tol)


def _best(ball, rho, starts):
    """Minimise at one radius from the present weights and from `starts`; leave the best in the ball."""
    arrays, objective, best = ball.weights.arrays, ball.objective, None
    for start in [None, *starts]:
        if start is not None:
            ball.weights.matrices = [arrays.array(M) for M in start]
        ball.scale_to(rho)
        acts, residual = ball.minimise()
        value = objective.value(ball.weights.logits())
        row = [value, *(arrays.tensor(a) for a in (acts, residual, *ball.weights.matrices))]
        best = row if best is None else _better(best, row)
    ball.weights.matrices = [arrays.array(M) for M in best[3:]]
    return best


def _better(best, row):
    """Problem by problem the lower loss, and among losses equal to rounding the smaller residual."""
    slack = 64 * torch.finfo(best[0].dtype).eps * best[0].abs()
    take = (row[0] < best[0] - slack) | ((row[0] <= best[0] + slack) & (row[2] < best[2]))
    return [torch.where(take.reshape(-1, *[1] * (new.ndim - 1)), new, old)
            for old, new in zip(best, row, strict=True)]


def _collect(prob, radii, rows, tol):
    value, acts, residual, *matrices = (
        torch.stack(column).reshape(len(rows), *prob.batch, *column[0].shape[1:])
        for column in zip(*rows, strict=True))
    K, Q = matrices if len(matrices) == 2 else (None, None)
    return RegularizationPath(
        radii=torch.tensor(radii, dtype=prob.X.dtype), W=matrices[0] if K is None else K @ Q.mT, K=K, Q=Q,
        loss=value, boundary=acts, residual=residual, converged=residual <= tol)
