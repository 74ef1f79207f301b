"""The nuclear-norm attention SVM: interior point steps, a Newton polish on the active face, a certificate."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from attncore.svm.bounds import primal_norm
from attncore.svm.constraints import Constraints
from attncore.svm.frobenius import Best
from attncore.svm.nuclear_conic import conic
from attncore.svm.nuclear_interior import Interior, Program
from attncore.svm.nuclear_polish import polish
from attncore.svm.nuclear_unique import uniqueness
from attncore.svm.quadratic import least_norm

ACCEPT, STEPS = 1e-13, 60
LARGE = 600  # rows
TRY, TRY_LARGE = 0.06, 1e-3  # gap from which the active face is worth guessing, up to and above LARGE
APART = 1e4  # ratio of bounds from which rounding breaks the small ones
DECIDED = 1e-9  # gap up to which uniqueness is decided


def solve(rows: Constraints, tol: float, plain: Best) -> Best:
    """Solve a flat batch with T > 1, given its Frobenius solutions `plain`, which settle feasibility."""
    best = Best(rows, "nuc")
    best.proof[:] = plain.proof
    for k in np.flatnonzero(np.isnan(plain.proof[:, 0, 0]) & (plain.gap < 1)):
        solve_one(Reduced(rows, k, plain), plain, best, tol)
    return best


def solve_one(reduced: Reduced, plain: Best, best: Best, tol: float) -> None:
    """The interior point method, Clarabel where it leaves a gap, then uniqueness."""
    k = reduced.k
    reduced.interior(best, min(tol, ACCEPT))
    if best.gap[k] > min(tol, ACCEPT):
        best.offer(np.array([k]), plain.weights[k : k + 1], plain.W[k : k + 1])
    if best.gap[k] > tol:
        reduced.conic(best)
    if best.gap[k] <= DECIDED:
        best.unique[k] = reduced.uniqueness(best)


class Reduced:
    """Problem k in coordinates of span(differences) x span(queries), unit rows, least Frobenius norm 1.

    Equations that `implied (m,)` marks follow from others: they become rows of zeros.
    """

    def __init__(self, rows: Constraints, k: int, plain: Best, implied: np.ndarray | None = None):
        self.k, self.size = k, float(primal_norm(plain.W[k], "fro"))
        d = rows.u.shape[-1]
        free = np.zeros(rows.u[k].shape[:2], bool).ravel() if rows.equal is None else rows.equal[k].ravel()
        u, self.left = coordinates(rows.u[k].reshape(-1, d))
        z, self.right = coordinates(rows.z[k])
        lengths = [np.sqrt(np.einsum("kd,kd->k", vectors, vectors)) for vectors in (u, z)]
        z = z / lengths[1][:, None]
        self.lengths = lengths[0] * lengths[1].repeat(len(u) // len(z))
        if implied is not None:
            self.lengths[implied] = lengths[0][implied] = np.inf
        u = u / lengths[0][:, None]
        self.start = self.left.T @ plain.W[k] @ self.right / self.size
        self.program = Program(u, z, np.where(free, 0.0, 1.0 / (self.lengths * self.size)), free)

    def interior(self, best: Best, target: float) -> None:
        """Interior point steps, each followed by an attempt to polish once the gap is small."""
        inner = Interior(self.program, self.start)
        worth = TRY if len(self.program.u) <= LARGE else TRY_LARGE
        for _ in range(STEPS):
            inner.step()
            if inner.gap < worth or inner.stuck:
                self.polish(inner.W, inner.lam, inner.lam > inner.s, best)
                if best.gap[self.k] <= target:
                    return
            if inner.stuck or inner.gap < 1e-9:
                break
        self.offer(inner.W, inner.lam, best)

    def conic(self, best: Best) -> None:
        """What Clarabel makes of it, polished."""
        found = conic(self.program)
        if found is not None:
            W, lam = found
            self.offer(W, lam, best)
            self.polish(W, lam, lam > self.program.margins(W) - self.program.b, best)

    def polish(self, W, lam, tight, best: Best) -> None:
        """Offer Newton's refinement of the point on its active face."""
        left, values, right = np.linalg.svd(self.program.combine(lam), full_matrices=False)
        strength = np.einsum("pr,pq,rq->r", left, W, right)
        r = max(1, int((strength > 1.0 - values).sum()))
        _, singular, basis = np.linalg.svd(W, full_matrices=False)
        Q = basis[:r].T * np.sqrt(singular[:r])
        program = self.program
        z = program.z.repeat(len(program.u) // len(program.z), 0)
        found = polish(program.u, z, program.b, program.free, np.where(tight | program.free, lam, 0.0), Q)
        if found is not None:
            self.offer(*found, best)

    def uniqueness(self, best: Best) -> int:
        """1 unique, 0 not, -1 open."""
        lam = best.weights[self.k].reshape(-1) * np.where(np.isinf(self.lengths), 0.0, self.lengths)
        return uniqueness(self.program, self.left.T @ best.W[self.k] @ self.right / self.size, lam)

    @cached_property
    def strict(self) -> np.ndarray | None:
        """The least matrix of margin 1 on every *unit* row, where bounds are decades apart; else None."""
        u, z, b, free = self.program.u, self.program.z, self.program.b, self.program.free
        if free.any() or b.max() < APART * b.min():
            return None
        A = (u[:, :, None] * z.repeat(len(u) // len(z), 0)[:, None, :]).reshape(len(u), -1)
        lam = least_norm(A, np.ones(len(u)))
        return None if lam is None else self.program.combine(lam)

    def offer(self, W, lam, best: Best) -> None:
        """Offer a pair. Rounding of W breaks rows of tiny bounds: a trace of `strict` lifts those at no cost."""
        if self.strict is not None:
            W = W + max(0.0, 2 * (self.program.b - self.program.margins(W)).max()) * self.strict
        weights = np.where(self.program.free, lam, np.maximum(lam, 0.0)) / self.lengths
        weights = weights.reshape(1, *best.weights.shape[1:])
        best.offer(np.array([self.k]), weights, self.left @ W[None] @ self.right.T * self.size)


def coordinates(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of ``vectors (k, d)`` in an orthonormal basis of a space that holds them, and the basis."""
    k, d = vectors.shape
    if k >= d:
        return vectors, np.eye(d)
    basis, triangle = np.linalg.qr(vectors.T)
    return np.ascontiguousarray(triangle.T), basis
