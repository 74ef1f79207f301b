"""From raw solver output to a `Solution`: scale it, measure it, undo the scale of the data."""

from __future__ import annotations

import numpy as np
import torch

from attncore.svm.bounds import Measure, dual_norm, measure, primal_norm
from attncore.svm.constraints import Constraints
from attncore.svm.solution import Solution, Status


def package(rows: Constraints, W, weights, proof, unique, norm: str, tol: float, like: torch.Tensor) -> Solution:
    """Certify ``W (B, d, d)`` and ``weights (B, n, T-1)``; `proof` holds Farkas weights, nan where feasible;
    `unique (B,)` is 1, 0 or -1 as in `Solution.uniqueness`.

    W is scaled to smallest margin 1, the weights with it ("fro") or to operator norm 1 ("nuc"). The batch
    shape, dtype and device are those of the tokens `like`.
    """
    if not rows.u.shape[2]:
        return _unconstrained(norm, like)
    W, weights = _normalise(rows, W, weights, norm)
    measured = measure(rows, W, weights, norm)
    gap, infeasible = measured.gap, ~np.isnan(proof[:, 0, 0])
    status = np.where(gap <= tol, Status.OPTIMAL, Status.APPROXIMATE)
    value = measured.size / rows.scale
    dual = weights / (rows.scale**2 if norm == "fro" else rows.scale)[:, None, None]
    fields = {
        "W": W / rows.scale[:, None, None],
        "value": value,
        "margin": np.divide(1.0, value, out=np.full_like(value, np.inf), where=value > 0),
        "gap": gap,
        "max_violation": np.maximum(measured.off, 1.0 - measured.margin),
        "kkt_residual": _kkt_residual(measured, W, norm),
        "dual": rows.spread(dual),
        "certificate": np.full((*weights.shape[:2], weights.shape[2] + 1), np.nan),
    }
    if infeasible.any():
        status[infeasible] = Status.INFEASIBLE
        for name in ("W", "gap", "max_violation", "kkt_residual", "dual"):
            fields[name][infeasible] = np.nan
        fields["value"][infeasible], fields["margin"][infeasible] = np.inf, 0.0
        fields["certificate"][infeasible] = rows.spread(proof)[infeasible]

    def tensor(array, dtype):
        return torch.from_numpy(array).reshape(like.shape[:-3] + array.shape[1:]).to(like.device, dtype)

    return Solution(
        **{name: tensor(array, like.dtype) for name, array in fields.items()},
        status=tensor(status, torch.int8),
        uniqueness=tensor(np.where(infeasible, 0, unique), torch.int8),
        norm=norm,
    )


def _normalise(rows: Constraints, W, weights, norm):
    least = rows.least_margin(rows.margins(W))
    # Rescaling rounds W, which can break rows whose bound is tiny: not for a change in the last digits.
    off = (least > 0) & (np.abs(least - 1.0) > 1e-14)
    factor = np.divide(1.0, least, out=np.ones_like(least), where=off)
    shrink = factor
    if norm == "nuc":
        length = dual_norm(rows.combine(weights), norm)
        shrink = np.divide(1.0, length, out=np.ones_like(length), where=length > 0)
    return W * factor[:, None, None], weights * shrink[:, None, None]


def _kkt_residual(measured: Measure, W, norm) -> np.ndarray:
    """Largest of the primal, stationarity and complementary-slackness residuals (see `Solution`)."""
    size = np.where(measured.size > 0, measured.size, 1.0)
    total = np.where(measured.total > 0, measured.total, 1.0)
    parts = [measured.off, 1.0 - measured.margin, np.abs(measured.slack) / total]
    if norm == "fro":
        parts.append(primal_norm(W - measured.combined, "fro") / size)
    else:
        aligned = np.einsum("bij,bij->b", measured.combined, W) / size
        parts += [measured.length - 1.0, np.where(measured.size > 0, 1.0 - aligned, 0.0)]
    return np.maximum.reduce([np.zeros_like(size), *parts])


def _unconstrained(norm: str, like: torch.Tensor) -> Solution:
    """T = 1: W = 0 of value 0 is optimal, with an infinite margin."""
    batch, (n, _, d) = like.shape[:-3], like.shape[-3:]
    zero = like.new_zeros(batch)
    return Solution(
        W=like.new_zeros((*batch, d, d)),
        value=zero,
        margin=like.new_full(batch, torch.inf),
        gap=zero,
        max_violation=zero,
        kkt_residual=zero,
        dual=like.new_zeros((*batch, n, 1)),
        certificate=like.new_full((*batch, n, 1), torch.nan),
        status=torch.zeros(batch, dtype=torch.int8, device=like.device),
        uniqueness=torch.ones(batch, dtype=torch.int8, device=like.device),
        norm=norm,
    )
