"""Two-sided bounds on the value of an attention SVM, from any candidate W and any dual weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attncore.svm.constraints import Constraints


def primal_norm(W: np.ndarray, norm: str) -> np.ndarray:
    """Frobenius or nuclear norm over the last two axes."""
    if norm == "fro":
        return np.sqrt(np.einsum("...ij,...ij->...", W, W))
    return np.linalg.svd(W, compute_uv=False).sum(-1)


def dual_norm(S: np.ndarray, norm: str) -> np.ndarray:
    """The dual norm over the last two axes: Frobenius for "fro", operator for "nuc"."""
    if norm == "fro":
        return primal_norm(S, "fro")
    return np.linalg.svd(S, compute_uv=False)[..., 0]


@dataclass(frozen=True)
class Bounds:
    """``lower <= |W^mm| <= upper`` (B,), with the smallest margin of W and its norm."""

    lower: np.ndarray
    upper: np.ndarray
    margin: np.ndarray
    norm: np.ndarray

    @property
    def gap(self) -> np.ndarray:
        """``(upper - lower) / upper``; 1 when the upper bound is infinite, 0 when both are 0."""
        safe = np.where(np.isfinite(self.upper) & (self.upper > 0), self.upper, 1.0)
        gap = np.maximum(0.0, (safe - np.minimum(self.lower, safe)) / safe)
        return np.where(self.upper == 0, 0.0, np.where(np.isfinite(self.upper), gap, 1.0))


def bounds(rows: Constraints, W: np.ndarray, weights: np.ndarray, norm: str) -> Bounds:
    r"""Certify a candidate W with row weights ``weights >= 0``.

    .. math:: \frac{1^T\lambda}{|A^T\lambda|_{dual}} \le |W^{mm}| \le \frac{|W|}{\min\ \mathrm{margin}(W)}

    Right: W over its smallest margin is feasible. Left: for feasible V,
    :math:`1^T\lambda \le \langle A^T\lambda, V\rangle \le |A^T\lambda|_{dual} |V|`.
    """
    size = primal_norm(W, norm)
    if not rows.u.shape[2]:
        zero = np.zeros(len(rows))
        return Bounds(zero, zero, np.full(len(rows), np.inf), size)
    margin = rows.margins(W).min(axis=(1, 2))
    upper = np.divide(size, margin, out=np.full(len(rows), np.inf), where=margin > 0)
    total = weights.sum(axis=(1, 2))
    length = dual_norm(rows.combine(weights), norm)
    lower = np.divide(total, length, out=np.zeros(len(rows)), where=length > 0)
    return Bounds(lower, upper, margin, size)
