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
class Measure:
    r"""A candidate W and row weights :math:`\lambda \ge 0` of B problems, measured.

    .. math:: \frac{1^T\lambda}{|A^T\lambda|_{dual}} \le |W^{mm}| \le \frac{|W|}{\min\ \mathrm{margin}(W)}

    Right: W over its smallest margin is feasible. Left: for feasible V,
    :math:`1^T\lambda \le \langle A^T\lambda, V\rangle \le |A^T\lambda|_{dual} |V|`.

    Attributes: ``size (B,)`` the norm of W; ``margin (B,)`` its smallest margin; ``total (B,)`` the sum of the
    weights; ``length (B,)`` the dual norm of ``combined (B, d, d)``, the weighted sum of the rows;
    ``slack (B,)`` the weighted sum of ``margin - 1``.
    With equations the bounds hold for W that satisfies them; their weights have any sign and do not count in the
    sums. ``off (B,)`` is the largest violation of one, ``price (B,)`` the sum of violations times weights of length 1.
    """

    size: np.ndarray
    margin: np.ndarray
    total: np.ndarray
    length: np.ndarray
    combined: np.ndarray
    slack: np.ndarray
    off: np.ndarray
    price: np.ndarray

    @property
    def lower(self) -> np.ndarray:
        return np.divide(self.total, self.length, out=np.zeros_like(self.total), where=self.length > 0)

    @property
    def upper(self) -> np.ndarray:
        return np.divide(self.size, self.margin, out=np.full_like(self.size, np.inf), where=self.margin > 0)

    @property
    def gap(self) -> np.ndarray:
        """``(upper - lower + price) / upper``; 1 when the upper bound is infinite or anything is nan."""
        upper = self.upper
        known = np.isfinite(upper) & (upper > 0)
        gap = np.divide(upper - self.lower + self.price, upper, out=np.ones_like(upper), where=known)
        gap[np.isinf(self.margin) & (self.size == 0)] = 0.0
        return np.nan_to_num(np.maximum(gap, 0.0), nan=1.0)


def measure(rows: Constraints, W: np.ndarray, weights: np.ndarray, norm: str) -> Measure:
    """Measure a candidate; the problems must have constraints (T > 1)."""
    margins, combined = rows.margins(W), rows.combine(weights)
    length = dual_norm(combined, norm)
    off = price = np.zeros(len(rows))
    counted = weights
    if rows.equal is not None:
        broken = np.abs(margins * rows.equal)
        off, price = broken.max(axis=(1, 2)), (np.abs(weights) * broken).sum(axis=(1, 2)) / np.maximum(length, 1e-300)
        counted = np.where(rows.equal, 0.0, weights)
    return Measure(
        size=primal_norm(W, norm),
        margin=rows.least_margin(margins),
        total=counted.sum(axis=(1, 2)),
        length=length,
        combined=combined,
        slack=np.einsum("bns,bns->b", counted, margins - 1.0),
        off=off,
        price=price,
    )
