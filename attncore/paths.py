r"""The regularisation path: minimisers of the loss over balls of growing radius.

For ``W`` the ball is ``|W|_F <= R``; for ``(K, Q)`` it is ``(|K|_F^2 + |Q|_F^2) / 2 <= R``, the nuclear-norm
ball in disguise: ``min (|K|^2 + |Q|^2) / 2`` over ``K Q^T = W`` is ``|W|_*`` when ``rank W <= m``
(arXiv 2308.16898, regularisation paths).

The descent on one ball is in ``attncore.ball``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from attncore.ball import Ball
from attncore.data import TokenSelection, check_problem
from attncore.gradients import flattened
from attncore.heads import resolve_head
from attncore.losses import resolve_loss
from attncore.threads import single_thread
from attncore.validation import as_tensor, one_of, positive_int, real, short
from attncore.weights import PARAMETRIZATIONS, one_start, start_weights

__all__ = ["RegularizationPath", "regularization_path"]


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
        normal, inside the ball the norm of the gradient relative to its norm where the descent entered.
        Zero means a Karush-Kuhn-Tucker point. The loss is not convex: no global minimum is certified.
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
    d, like = prob.X.shape[-1], {"dtype": prob.X.dtype, "device": prob.X.device}
    return [one_start(value, f"directions[{k}]", prob.batch, d, d, like) for k, value in enumerate(directions)]


def _radii(radii):
    values = as_tensor(radii, "radii", dtype=torch.float64, device="cpu")
    if values.ndim != 1 or not len(values):
        raise ValueError(f"radii must be a list of at least one number, got {short(radii)}")
    return [real(value, "radii", above=0.0) for value in values.tolist()]


def regularization_path(prob: TokenSelection, radii, parametrization: str = "W", m: int | None = None,
                        loss="logistic", head="linear", directions=None, seed: int = 0, tol: float = 1e-9,
                        max_iter: int = 4000) -> RegularizationPath:
    r"""Minimise the loss over balls of the given radii, each started from the solution before::

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
        natural choice, since the theorem speaks of global minimisers. Where the loss is within rounding of
        its infimum all starts are equals: then give one direction at a time and compare with
        ``attncore.squeeze.excess_loss``.
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

    Examples
    --------
    >>> from attncore.data import token_selection
    >>> path = regularization_path(token_selection(2, 3, 4), [1.0, 10.0])
    >>> path.W.shape, path.converged.tolist(), [round(float(W.norm()), 9) for W in path.W]
    (torch.Size([2, 4, 4]), [True, True], [1.0, 10.0])
    """
    check_problem(prob)
    one_of(parametrization, "parametrization", PARAMETRIZATIONS)
    radii, starts = _radii(radii), _directions(prob, directions)
    tol, max_iter = real(tol, "tol", above=0.0), positive_int(max_iter, "max_iter")
    first = start_weights(prob, parametrization, m, None, positive_int(seed, "seed", minimum=0))
    head, loss = resolve_head(head), resolve_loss(loss)
    if parametrization == "KQ":
        starts = [_factor(W, first[0].shape[-1]) for W in starts]
    starts = [[M.reshape(-1, *M.shape[-2:]) for M in (start if parametrization == "KQ" else [start])]
              for start in starts]
    norms = radii if parametrization == "W" else [math.sqrt(2 * R) for R in radii]
    with torch.no_grad(), np.errstate(all="ignore"), single_thread(prob.X):
        flat = [M.reshape(-1, *M.shape[-2:]) for M in first]
        ball = Ball(flattened(prob), prob.batch, PARAMETRIZATIONS[parametrization], flat, head, loss, tol)
        rows = [_best(ball, rho, starts, max_iter) for rho in norms]
    return _collect(prob, radii, rows, tol)


def _best(ball, rho, starts, max_iter):
    """Minimise at one radius from the present weights and from `starts`; leave the best in the ball."""
    best = None
    for start in [None, *starts]:
        if start is not None:
            ball.restart(start)
        ball.scale_to(rho)
        acts, residual = ball.minimise(max_iter)
        value, *matrices = ball.state()
        row = [value, acts, residual, *matrices]
        best = row if best is None else _better(best, row)
    ball.restart(best[3:])
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
