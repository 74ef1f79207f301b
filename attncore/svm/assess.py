"""From raw solver output to a `Solution`: scale it, measure it, undo the scale of the data."""

from __future__ import annotations

import numpy as np
import torch

from attncore.svm.bounds import bounds, primal_norm
from attncore.svm.constraints import Constraints
from attncore.svm.solution import Solution, Status


def package(rows, W, weights, certificate, norm, tol, like: torch.Tensor) -> Solution:
    """Scale W to smallest margin 1 and the weights to their normalisation, measure, undo the data scale."""
    B, n, S = rows.u.shape[:3]
    d = W.shape[-1]
    if S:
        least = rows.margins(W).min(axis=(1, 2))
        factor = np.where(least > 0, 1.0 / np.where(least > 0, least, 1.0), 1.0)
        W = W * factor[:, None, None]
        S_op = np.linalg.norm(rows.combine(weights), 2, axis=(1, 2)) if norm == "nuc" else None
        shrink = factor if norm == "fro" else np.where(S_op > 0, 1.0 / np.where(S_op > 0, S_op, 1.0), 1.0)
        weights = weights * shrink[:, None, None]
    certified = bounds(rows, W, weights, norm)
    gap, infeasible = certified.gap, np.zeros(B, dtype=bool)
    if S:
        infeasible = ~np.isnan(certificate).any(axis=(1, 2))
    violation = np.maximum(0.0, 1.0 - certified.margin)
    residual = np.maximum(violation, _kkt(rows, W, weights, norm)) if S else violation
    status = np.where(infeasible, Status.INFEASIBLE, np.where(gap <= tol, Status.OPTIMAL, Status.APPROXIMATE))
    singular = np.linalg.svd(W, compute_uv=False)
    cut = np.maximum(1e-9, np.sqrt(2 * gap)) * singular[:, 0]
    rank = np.where(infeasible, -1, (singular > cut[:, None]).sum(-1))
    value = np.where(infeasible, np.inf, certified.norm / rows.scale)
    nan = np.where(infeasible, np.nan, 1.0)
    power = 2 if norm == "fro" else 1
    dual = rows.spread(weights / (rows.scale**power)[:, None, None]) * nan[:, None, None]
    proof = rows.spread(certificate) if S else np.full((B, n, 1), np.nan)
    proof[~infeasible] = np.nan
    batch = like.shape[:-3]

    def tensor(array, *shape, dtype=None):
        out = torch.from_numpy(np.ascontiguousarray(array)).reshape((*batch, *shape))
        return out.to(device=like.device, dtype=dtype or like.dtype)

    with np.errstate(divide="ignore"):
        margin = 1.0 / value
    return Solution(
        W=tensor(W / rows.scale[:, None, None] * nan[:, None, None], d, d),
        value=tensor(value),
        margin=tensor(margin),
        gap=tensor(gap * nan),
        max_violation=tensor(violation * nan),
        kkt_residual=tensor(residual * nan),
        rank=tensor(rank, dtype=torch.int64),
        singular_values=tensor(singular / rows.scale[:, None] * nan[:, None], d),
        unique=tensor(~infeasible, dtype=torch.bool) if norm == "fro" else None,
        dual=tensor(dual, n, S + 1),
        status=tensor(status, dtype=torch.int8),
        certificate=tensor(proof, n, S + 1),
        norm=norm,
    )


def _kkt(rows: Constraints, W, weights, norm) -> np.ndarray:
    """Larger of the stationarity and the complementary-slackness residual (see `Solution`)."""
    total = weights.sum(axis=(1, 2))
    slack = (weights * (rows.margins(W) - 1.0)).sum(axis=(1, 2)) / np.where(total > 0, total, 1.0)
    combined = rows.combine(weights)
    size = np.where(primal_norm(W, norm) > 0, primal_norm(W, norm), 1.0)
    if norm == "fro":
        return np.maximum(np.abs(slack), primal_norm(W - combined, "fro") / size)
    alignment = 1.0 - np.einsum("bij,bij->b", combined, W) / size
    return np.maximum.reduce([np.abs(slack), np.abs(alignment), np.linalg.norm(combined, 2, axis=(1, 2)) - 1.0])
