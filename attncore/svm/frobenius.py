"""The Frobenius attention SVM: a strictly convex quadratic program, its solver chosen by size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import daqp
import numpy as np
import torch

from attncore.svm.bounds import measure
from attncore.svm.constraints import Constraints
from attncore.svm.first_order import accelerated
from attncore.svm.infeasibility import farkas
from attncore.svm.large import DENSE_SIZE, solve_large
from attncore.svm.quadratic import NO_BOUND, Dense, least_norm, least_squares, sharpen

ACCEPT = 1e-13
LARGE = 1e8
CHUNK = 2**18  # Gram matrix entries formed at once: a batch of any size needs little memory, and stays in cache


class Best:
    """The best certified answers so far: ``W (B, d, d)``, ``weights (B, n, T-1)``, ``gap (B,)``; proofs if none.

    ``unique (B,)``: 1 where the minimiser is proved unique, 0 where proved not to be, -1 where not known.
    """

    def __init__(self, rows: Constraints, norm: str = "fro"):
        self.rows, self.norm = rows, norm
        self.W = np.zeros((len(rows), rows.u.shape[-1], rows.u.shape[-1]))
        self.weights = np.zeros(rows.u.shape[:3])
        self.gap = np.ones(len(rows))
        self.proof = np.full(rows.u.shape[:3], np.nan)
        self.unique = np.full(len(rows), 1 if norm == "fro" else -1, np.int8)

    def offer(self, index: np.ndarray, weights: np.ndarray, W: np.ndarray | None = None) -> None:
        """Keep these weights for the problems `index`, and W (or the W they give), where their gap is smaller."""
        part = self.rows if index.size == len(self.rows) else self.rows[index]
        W = part.combine(weights) if W is None else W
        gap = measure(part, W, weights, self.norm).gap
        better = gap < self.gap[index]
        kept = index[better]
        self.W[kept], self.weights[kept], self.gap[kept] = W[better], weights[better], gap[better]


def solve(rows: Constraints, tol: float) -> Best:
    """Solve a flat batch with T > 1, each problem to a gap of `tol` or a proof of infeasibility, where possible.

    Each method passes the problems that it did not solve on to the next.
    """
    B, n, S, d = rows.u.shape
    best = Best(rows)
    m, p = n * S, min(n * S, d) * min(n, d)
    solvable = rows.row_norms().min(axis=(1, 2)) > 0
    if m * p * min(m, p) > LARGE:
        for k in np.flatnonzero(solvable):
            _large(rows, k, best, min(tol, 1e-10))
    else:
        for method in [_screened, _dual, _primal] if m <= p else [_primal]:
            left = np.flatnonzero(solvable & (best.gap > min(tol, ACCEPT)))
            for part in np.split(left, range(CHUNK // m**2 + 1, left.size, CHUNK // m**2 + 1)):
                if part.size:
                    best.offer(part, *method(rows if part.size == B else rows[part]))
    for k in np.flatnonzero((best.gap > tol) & np.isnan(best.proof[:, 0, 0])):
        proof = farkas(rows, k) if best.gap[k] == 1 else None
        if proof is not None:
            best.proof[k] = proof
        elif m * p <= DENSE_SIZE:
            best.offer(np.array([k]), *_written_out(rows[k : k + 1], least_squares))
    return best


def _large(rows: Constraints, k: int, best: Best, target: float) -> None:
    u, z, b, factor = (array[0] for array in _unit(rows[k : k + 1]))
    lam, infeasible = solve_large(u, z, b, target)
    weights = lam * factor
    if infeasible:
        best.proof[k] = weights / weights.sum()
    else:
        best.offer(np.array([k]), weights[None])


def _unit(rows: Constraints):
    """Unit differences and queries, the bounds of the unit rows (largest 1), and the factor of the weights."""
    lu, lz = (np.sqrt(np.einsum("...d,...d->...", a, a)) for a in (rows.u, rows.z))
    size = lu * lz[..., None]
    least = size.min(axis=(1, 2), keepdims=True)
    return rows.u / lu[..., None], rows.z / lz[..., None], least / size, 1.0 / (size * least)


def _gram(rows: Constraints):
    """Gram matrices (B, m, m) of the unit rows, their bounds (B, m), and the factor of the weights."""
    u, z, b, back = _unit(rows)
    B, n, S, d = u.shape
    flat = u.reshape(B, n * S, d)
    gram = flat @ np.ascontiguousarray(flat.swapaxes(1, 2))
    gram.reshape(B, n, S, n * S)[...] *= np.repeat(z @ z.swapaxes(1, 2), S, 2)[:, :, None]
    return gram, b.reshape(B, n * S), back


def _dual(rows: Constraints, screen=None) -> tuple[np.ndarray]:
    """``min lam^T G lam / 2 - b^T lam`` over ``lam >= 0``: small when constraints are few, wants G regular."""
    gram, b, back = _gram(rows)
    B, m = b.shape
    keep = np.ones((B, m), bool) if screen is None else screen(gram, b)
    none, upper, lower = np.zeros((0, m)), np.full(m, NO_BOUND), np.zeros(m)
    found = np.zeros((B, m))

    def run(block):
        for k in block:
            kept = keep[k].nonzero()[0]
            w = kept.size
            G = gram[k] if w == m else gram[k].take(kept, 0).take(kept, 1)
            x, _, flag, _ = daqp.solve(G, -b[k, kept], none[:, :w], upper[:w], lower[:w])
            found[k, kept] = x if flag > 0 else np.nan

    _share(run, B)
    return (np.maximum(found, 0.0).reshape(back.shape) * back,)


def _screened(rows: Constraints) -> tuple[np.ndarray]:
    """`_dual` on the rows that a few first-order steps leave in doubt: about half of them."""

    def screen(gram, b):
        gram, b = gram.astype(np.float32), b.astype(np.float32)
        with np.errstate(all="ignore"):  # where the step was too long the guess runs off: then every row is kept
            lam = accelerated(lambda x: (gram @ x[..., None])[..., 0], b, 10)
            idle = (lam == 0) & ((gram @ lam[..., None])[..., 0] >= 1.05 * b)
        return ~idle | ~np.isfinite(lam).all(-1, keepdims=True)

    return _dual(rows, screen)


def _primal(rows: Constraints):
    """``min |w|^2 / 2`` over the unit rows in reduced coordinates: exact whatever the rank of the data."""
    return _written_out(rows, least_norm)


def _written_out(rows: Constraints, method) -> tuple[np.ndarray, np.ndarray]:
    """Weights (B, n, T-1) and W (B, d, d) from ``method(A, bound)`` on each problem; nan where it gives None."""
    B, n, S, d = rows.u.shape
    weights, W = np.full((B, n * S), np.nan), np.full((B, d, d), np.nan)

    def run(block):
        for k in block:
            dense = Dense.of(rows, k)
            lam = method(dense.A, dense.bound)
            if lam is not None:
                w, lam = sharpen(dense.A, dense.bound, lam)
                weights[k], W[k] = lam * dense.factor, dense.embed(w)

    _share(run, B)
    return weights.reshape(B, n, S), W


def _share(run, count: int) -> None:
    """Share ``range(count)`` between as many threads as torch uses: DAQP releases the interpreter lock."""
    workers = min(torch.get_num_threads(), count // 8)
    if workers < 2:
        return run(range(count))
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, [range(k, count, workers) for k in range(workers)]))
