"""The Frobenius attention SVM: a strictly convex quadratic program, its solver chosen by size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import daqp
import numpy as np
import torch

from attncore.svm.bounds import bounds
from attncore.svm.constraints import Constraints
from attncore.svm.infeasibility import unit_rows
from attncore.svm.matrix_free import matrix_free

NO_BOUND = 1e30
ACCEPT = 1e-13
LARGE = 1e8


def dual_weights(rows: Constraints) -> np.ndarray:
    """Row weights (B, n, T-1) of the dual solution, nan where every solver failed or found it infeasible."""
    B, n, S, d = rows.u.shape
    weights = np.full((B, n, S), np.nan)
    if not S:
        return weights
    m, p = n * S, min(n * S, d) * min(n, d)
    open_ = rows.row_norms().reshape(B, -1).min(axis=1) > 0
    if m * p * min(m, p) > LARGE:
        open_ = _attempt(rows, weights, open_, _matrix_free)
    elif m <= p:
        open_ = _attempt(rows, weights, open_, _daqp_dual)
    _attempt(rows, weights, open_, _daqp_primal)
    return weights


def _attempt(rows: Constraints, weights: np.ndarray, todo: np.ndarray, method) -> np.ndarray:
    """Run `method` on the problems `todo`, keep what is better certified; which are still to be done."""
    index = np.flatnonzero(todo)
    if not index.size:
        return todo
    part = rows[index]
    new = method(part)
    old = weights[index]
    gaps = []
    for candidate in (old, new):
        filled = np.nan_to_num(candidate, nan=0.0, posinf=0.0)
        gaps.append(bounds(part, part.combine(filled), filled, "fro").gap)
    gaps[1][~np.isfinite(new).all(axis=(1, 2))] = np.inf
    better = gaps[1] < np.where(np.isnan(old).any(axis=(1, 2)), 1.0, gaps[0])
    weights[index[better]] = new[better]
    left = np.zeros_like(todo)
    left[index] = np.minimum(*gaps) > ACCEPT
    return left


def _unit(rows: Constraints):
    """Unit differences and queries, the bounds of the unit rows (largest 1), and their factor back."""
    lu, lz = np.linalg.norm(rows.u, axis=-1), np.linalg.norm(rows.z, axis=-1)
    size = lu * lz[..., None]
    least = size.min(axis=(1, 2), keepdims=True)
    return rows.u / lu[..., None], rows.z / lz[..., None], least / size, 1.0 / (size * least)


def _matrix_free(rows: Constraints) -> np.ndarray:
    u, z, b, back = _unit(rows)
    return np.stack([matrix_free(*problem) for problem in zip(u, z, b, strict=True)]) * back


def _daqp_dual(rows: Constraints) -> np.ndarray:
    """``min lam^T G lam / 2 - b^T lam`` over ``lam >= 0``: small when constraints are few, wants G regular."""
    B, n, S, d = rows.u.shape
    u, z, b, back = _unit(rows)
    u = u.reshape(B, n * S, d)
    gram = (u @ u.swapaxes(1, 2)).reshape(B, n, S, n, S) * (z @ z.swapaxes(1, 2))[:, :, None, :, None]
    gram = gram.reshape(B, n * S, n * S)
    linear = -b.reshape(B, n * S)
    none, upper, lower = np.zeros((0, n * S)), np.full(n * S, NO_BOUND), np.zeros(n * S)
    found = np.full((B, n * S), np.nan)

    def run(block):
        for k in block:
            x, _, flag, _ = daqp.solve(gram[k], linear[k], none, upper, lower)
            if flag > 0:
                found[k] = x

    _spread(run, B)
    return np.maximum(found.reshape(B, n, S), 0.0) * back


def _daqp_primal(rows: Constraints) -> np.ndarray:
    """``min |w|^2 / 2`` over the unit rows in reduced coordinates: exact whatever the rank of the data."""
    B, n, S = rows.u.shape[:3]
    found = np.full((B, n * S), np.nan)

    def run(block):
        for k in block:
            A, size = unit_rows(rows, k)
            m, p = A.shape
            bound, none = size.min() / size, np.full(m, NO_BOUND)
            sense = np.zeros(m, dtype=np.int32)
            _, _, flag, info = daqp.solve(np.eye(p), np.zeros(p), A, none, bound, sense, primal_tol=1e-11)
            if flag > 0:
                found[k] = np.maximum(0.0, -info["lam"]) / (size * size.min())

    _spread(run, B)
    return found.reshape(B, n, S)


def _spread(run, count: int) -> None:
    """Share ``range(count)`` between torch's number of threads: DAQP releases the interpreter lock."""
    workers = min(torch.get_num_threads(), count // 8)
    if workers < 2:
        run(range(count))
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, [range(k, count, workers) for k in range(workers)]))
