"""The nuclear-norm attention SVM: interior point steps, a Newton polish on the active face, a certificate."""

from __future__ import annotations

import numpy as np

from attncore.svm.bounds import primal_norm
from attncore.svm.constraints import Constraints
from attncore.svm.frobenius import Best, unit_rows
from attncore.svm.nuclear_interior import Program, State, advance, start
from attncore.svm.nuclear_polish import polish

ACCEPT = 1e-13
STAGES = ((1e-4, 40), (1e-6, 20), (1e-8, 20), (1e-11, 20))


def solve(rows: Constraints, tol: float, plain: Best) -> Best:
    """Solve a flat batch with T > 1, given its Frobenius solutions `plain`, which settle feasibility."""
    best = Best(rows, "nuc")
    best.proof[:] = plain.proof
    feasible = np.flatnonzero(np.isnan(plain.proof[:, 0, 0]) & (plain.gap < 1))
    best.offer(feasible, plain.weights[feasible], plain.W[feasible])
    if feasible.size:
        _interior(rows, feasible, plain, best, tol)
    return best


def _interior(rows: Constraints, index: np.ndarray, plain: Best, best: Best, tol: float) -> None:
    part = rows if index.size == len(rows) else rows[index]
    reduced = Reduced(part, primal_norm(plain.W[index], "fro"))
    state = start(reduced.program)
    left = np.arange(index.size)
    for target, steps in STAGES:
        state.put(left, advance(reduced.program[left], state[left], target, steps))
        for k in left:
            reduced.finish(state, k, best, index[k])
        left = left[best.gap[index[left]] > min(tol, ACCEPT)]
        if not left.size:
            break


class Reduced:
    """A batch in coordinates of span(differences) x span(queries), unit rows, least Frobenius norm about 1."""

    def __init__(self, rows: Constraints, size: np.ndarray):
        u, z, b, _ = unit_rows(rows)
        B, n, S, d = u.shape
        self.lengths = rows.row_norms().reshape(B, n * S)
        self.scale = size
        flat = u.reshape(B, n * S, d)
        flat, self.left = _coordinates(flat)
        z, self.right = _coordinates(z)
        bound = 1.0 / (self.lengths * size[:, None])
        self.program = Program(flat, z, bound, np.zeros((B, n * S), bool))

    def finish(self, state: State, k: int, best: Best, index: int) -> None:
        """Offer the polished point of problem k, and the point itself where that is not enough."""
        program = self.program
        p, S = program.u.shape[2], program.u.shape[1] // program.z.shape[1]
        W, lam, s = state.X[k, :p, p:], state.lam[k], state.s[k]
        left, values, right = np.linalg.svd(program[k : k + 1].combine(state.lam[k : k + 1])[0], full_matrices=False)
        strength = np.einsum("pr,pq,rq->r", left, W, right)
        r = max(1, int((strength > 1.0 - values).sum()))
        tight = np.flatnonzero(program.free[k] | (lam > s))
        if tight.size:
            _, singular, basis = np.linalg.svd(W, full_matrices=False)
            Q = basis[:r].T * np.sqrt(singular[:r])
            z = program.z[k, tight // S]
            refined = polish(program.u[k, tight], z, program.b[k, tight], lam[tight], Q)
            if refined is not None:
                full = np.zeros_like(lam)
                full[tight] = refined[1]
                self._offer(refined[0], full, k, best, index)
        self._offer(W, lam, k, best, index)

    def _offer(self, W, lam, k: int, best: Best, index: int) -> None:
        shape = best.weights.shape[1:]
        weights = np.maximum(lam, 0.0) / self.lengths[k]
        W = self.left[k] @ W @ self.right[k].T * self.scale[k]
        best.offer(np.array([index]), weights.reshape(1, *shape), W[None])


def _coordinates(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of ``vectors (B, k, d)`` in an orthonormal basis of a space that holds them, and the basis."""
    B, k, d = vectors.shape
    if k >= d:
        return vectors, np.broadcast_to(np.eye(d), (B, d, d))
    basis, triangle = np.linalg.qr(vectors.swapaxes(1, 2))
    return triangle.swapaxes(1, 2), basis
