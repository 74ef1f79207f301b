"""The Frobenius attention SVM: a strictly convex quadratic program, its solver chosen by size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import daqp
import numpy as np
import torch

from attncore.svm.bounds import measure
from attncore.svm.constraints import Constraints
from attncore.svm.first_order import accelerated
from attncore.svm.infeasibility import unit_rows
from attncore.svm.large import solve_large
from attncore.svm.quadratic import NO_BOUND, least_norm, lift

ACCEPT = 1e-13
LARGE = 1e8


def solve(rows: Constraints, tol: float) -> tuple[np.ndarray, np.ndarray]:
    """Dual row weights (B, n, T-1) and Farkas weights, each nan where there are none.

    Each method passes the problems that it did not solve on to the next; the best certified answer is kept.
    """
    B, n, S, d = rows.u.shape
    weights, proof, gap = np.full((B, n, S), np.nan), np.full((B, n, S), np.nan), np.ones(B)
    m, p = n * S, min(n * S, d) * min(n, d)
    solvable = rows.row_norms().min(axis=(1, 2)) > 0
    if m * p * min(m, p) > LARGE:
        for k in np.flatnonzero(solvable):
            unit = [array[0] for array in _unit(rows[k : k + 1])]
            lam, infeasible = solve_large(*unit[:3], min(tol, 1e-10))
            (proof if infeasible else weights)[k] = lam * unit[3] / (lam * unit[3]).sum() ** infeasible
        return weights, proof
    methods = [_screened, _dual, _primal] if m <= p else [_primal]
    for method in methods:
        left = np.flatnonzero(solvable & (gap > min(tol, ACCEPT)))
        if not left.size:
            break
        part = rows if left.size == B else rows[left]
        found = method(part)
        reached = measure(part, part.combine(found), found, "fro").gap
        better = reached < gap[left]
        weights[left[better]], gap[left[better]] = found[better], reached[better]
    return weights, proof


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
    gram *= np.repeat(np.repeat(z @ z.swapaxes(1, 2), S, 1), S, 2)
    return gram, b.reshape(B, n * S), back


def _dual(rows: Constraints, screen=None) -> np.ndarray:
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
    return np.maximum(found, 0.0).reshape(back.shape) * back


def _screened(rows: Constraints) -> np.ndarray:
    """`_dual` on the rows that a few first-order steps leave in doubt: about half of them."""

    def screen(gram, b):
        lam = accelerated(lambda x: (gram @ x[..., None])[..., 0], b, 10)
        return (lam > 0) | ((gram @ lam[..., None])[..., 0] < 1.05 * b)

    return _dual(rows, screen)


def _primal(rows: Constraints) -> np.ndarray:
    """``min |w|^2 / 2`` over the unit rows in reduced coordinates: exact whatever the rank of the data."""
    B, n, S = rows.u.shape[:3]
    found = np.full((B, n * S), np.nan)

    def run(block):
        for k in block:
            A, size = unit_rows(rows, k)
            least = size.min()
            lam = least_norm(A, least / size)
            if lam is not None:
                found[k] = lift(A, least / size, lam) / (size * least)

    _share(run, B)
    return found.reshape(B, n, S)


def _share(run, count: int) -> None:
    """Share ``range(count)`` between as many threads as torch uses: DAQP releases the interpreter lock."""
    workers = min(torch.get_num_threads(), count // 8)
    if workers < 2:
        return run(range(count))
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, [range(k, count, workers) for k in range(workers)]))
