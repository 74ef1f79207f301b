"""Descent on ``loss + lam * balance``: one loop for the preconditioned method and the methods it is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import torch

from attncore.preconditioning.population import balance_gradient, imbalance, inverse, natural, sharpness
from attncore.preconditioning.whitened import square_roots
from attncore.validation import one_of, positive_int, real, short

METHODS = ("preconditioned", "gd", "sgd", "adam")


class Status(IntEnum):
    """How a run ended; ``message`` says what to do about it."""

    FINISHED = 0
    CONVERGED = 1
    STOPPED = 2
    DIVERGED = 3

    @property
    def message(self) -> str:
        """One sentence for the user."""
        return {
            Status.FINISHED: "all steps were taken; look at history.loss to see whether more would help",
            Status.CONVERGED: "the gradient fell below tol; nothing to do",
            Status.STOPPED: "the callback stopped the run; the last state is returned",
            Status.DIVERGED: "the loss grew beyond bounds and the last recorded finite state is returned; take a "
            "smaller lr, or method='preconditioned', whose step needs no tuning",
        }[self]


@dataclass(frozen=True)
class History:
    """What was recorded along the way; R records, leading axes of the problem after them.

    Attributes
    ----------
    steps : (R,) int64
        Number of steps taken before each record; 0 is the start.
    loss : (R, ...)
        Loss without regulariser, in squared units of the targets; nan once a run has diverged.
    balance : (R, ...)
        ``1/4 |U^T U - Z^T Z|_F^2`` of the state as trained (targets divided by tau).
    A : (R, ..., p, d)
    B : (R, ..., d, d)
    """

    steps: torch.Tensor
    loss: torch.Tensor
    balance: torch.Tensor
    A: torch.Tensor
    B: torch.Tensor


@dataclass(frozen=True)
class Plan:
    """How to descend: checked once, used by population and empirical runs alike. Fields as in `fit`."""

    method: str
    steps: int
    lam: float
    lr: float | None
    c: float
    momentum: float
    record: tuple[int, ...]
    tol: float
    callback: Callable | None

    @classmethod
    def checked(cls, method, steps, lam, lr, c, momentum, record, tol, callback) -> Plan:
        """Build a plan from user input."""
        method, steps = one_of(method, "method", METHODS), positive_int(steps, "steps", minimum=0)
        lr = None if lr is None else real(lr, "lr", above=0)
        momentum = real(momentum, "momentum", at_least=0)
        if momentum >= 1 or (momentum and method == "adam"):
            raise ValueError(f"momentum must lie in [0, 1), and be 0 for adam, got {momentum} with method={method!r}")
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable, got {short(callback)}")
        lam, c, tol = real(lam, "lam", at_least=0), real(c, "c", above=0), real(tol, "tol", at_least=0)
        return cls(method, steps, lam, lr, c, momentum, _recorded(record, steps), tol, callback)


def _recorded(record, steps: int) -> tuple[int, ...]:
    """Steps to record: every so many, or those listed; 0 and the last are always in."""
    if record is None:
        record = max(1, steps // 100)
    if isinstance(record, (list, tuple)):
        chosen = {positive_int(step, "record", minimum=0) for step in record}
        if chosen and max(chosen) > steps:
            raise ValueError(f"record must lie in 0..{steps}, got {max(chosen)}")
    else:
        chosen = set(range(0, steps + 1, positive_int(record, "record")))
    return tuple(sorted(chosen | {0, steps}))


class Geometry:
    """The covariance of a run with its factors, and the two gradients it turns one into the other."""

    def __init__(self, Sigma: torch.Tensor, top: torch.Tensor):
        self.Sigma, self.top = Sigma, top
        self.inverse, (self.root, _) = inverse(Sigma), square_roots(Sigma)
        largest = torch.linalg.eigvalsh(Sigma)[..., -1]
        # Curvature in (A, B) is at most that in (U, Z) times |Sigma| for A and |Sigma|^2 for B.
        self.plain = torch.maximum(largest, largest.square())

    def slope(self, gA, gB, nA, nB) -> torch.Tensor:
        """Norm of the gradient in the ``Sigma`` metric."""
        return ((gA * nA).sum((-1, -2)) + (gB * nB).sum((-1, -2))).clamp_min(0).sqrt()


class Stepper:
    """Direction and length of a step, with the memory that momentum and Adam need."""

    def __init__(self, plan: Plan, geometry: Geometry):
        self.plan, self.geometry, self.memory, self.count = plan, geometry, None, 0

    def __call__(self, A, B, gA, gB, nA, nB):
        """The next `A` and `B`, given the gradient and its preconditioned form."""
        plan, geometry = self.plan, self.geometry
        if plan.method == "adam":
            return self._adam(A, B, gA, gB)
        dA, dB = (nA, nB) if plan.method == "preconditioned" else (gA, gB)
        eta = plan.lr
        if eta is None:
            scale = sharpness(A, B, geometry.root, geometry.top)
            scale = scale if plan.method == "preconditioned" else scale * geometry.plain
            eta = (plan.c / scale)[..., None, None]
        dA, dB = eta * dA, eta * dB
        if plan.momentum:
            if self.memory is not None:
                dA, dB = dA + plan.momentum * self.memory[0], dB + plan.momentum * self.memory[1]
            self.memory = dA, dB
        return A - dA, B - dB

    def _adam(self, A, B, gA, gB):
        """Adam with its usual constants; default lr 0.01."""
        self.count += 1
        first, second = self.memory or ([0.0, 0.0], [0.0, 0.0])
        first = [0.9 * m + 0.1 * g for m, g in zip(first, (gA, gB), strict=True)]
        second = [0.999 * v + 0.001 * g.square() for v, g in zip(second, (gA, gB), strict=True)]
        self.memory = first, second
        a, b, lr = 1 - 0.9**self.count, 1 - 0.999**self.count, 0.01 if self.plan.lr is None else self.plan.lr
        moves = [lr * (m / a) / ((v / b).sqrt() + 1e-8) for m, v in zip(first, second, strict=True)]
        return A - moves[0], B - moves[1]


def run(plan: Plan, A, B, geometry: Geometry, gradient: Callable, loss: Callable, show: Callable):
    """Descend from `A` (g, p, d), `B` (g, d, d) with one batch axis.

    ``gradient(A, B)`` gives the loss seen by this step and its two gradients; ``loss(A, B)`` the loss to record, or
    None when ``gradient`` sees that very loss; ``show(step, A, B, loss)`` calls the user's callback.
    Returns ``(A, B, records, status (g,) int8)`` with records ``(step, loss, balance, A, B)``.
    """
    move, records, start = Stepper(plan, geometry), [], None
    status = torch.zeros(len(A), dtype=torch.int8, device=A.device)
    wanted, kept = set(plan.record), (A, B)
    for step in range(plan.steps + 1):
        seen, gA, gB = gradient(A, B)
        if plan.lam:
            rA, rB = balance_gradient(A, B, geometry.Sigma)
            gA, gB = gA + plan.lam * rA, gB + plan.lam * rB
        start = seen if start is None else start
        finite = torch.isfinite(seen) & torch.isfinite(gA.sum((-1, -2)) + gB.sum((-1, -2)))
        lost = (status == Status.FINISHED) & ~(finite & (seen <= 1e8 * (start + geometry.top.square())))
        if bool(lost.any()):
            status[lost] = Status.DIVERGED
            A, B = (torch.where(lost[:, None, None], old, new) for old, new in zip(kept, (A, B), strict=True))
        nA, nB = natural(gA, gB, geometry.inverse) if plan.method == "preconditioned" or plan.tol else (gA, gB)
        if plan.tol:
            small = geometry.slope(gA, gB, nA, nB) <= plan.tol * geometry.top**1.5
            status[small & (status == Status.FINISHED)] = Status.CONVERGED
        over = not bool((status == Status.FINISHED).any())
        if step in wanted or over:
            value = seen if loss is None else loss(A, B)
            value = torch.where(status == Status.DIVERGED, torch.nan, value)
            records.append((step, value, imbalance(A, B, geometry.Sigma), A, B))
            kept = A, B
            if show(step, A, B, value) and step < plan.steps and not over:
                status[status == Status.FINISHED] = Status.STOPPED
                over = True
        if over or step == plan.steps:
            break
        going = (status == Status.FINISHED)[:, None, None]
        newA, newB = move(A, B, gA, gB, nA, nB)
        A, B = torch.where(going, newA, A), torch.where(going, newB, B)
    return A, B, records, status


def history(records, batch, scale: torch.Tensor) -> History:
    """Stack the records of :func:`run`, multiply the values back by `scale` (g,) and restore the batch shape."""
    steps, loss, uneven, A, B = zip(*records, strict=True)

    def stack(values, factor=1.0):
        values = torch.stack([value * factor for value in values])
        return values.reshape(len(steps), *batch, *values.shape[2:])

    return History(
        torch.tensor(steps), stack(loss, scale.square()), stack(uneven), stack(A, scale[:, None, None]), stack(B)
    )
