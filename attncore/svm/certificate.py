"""`certify`: what any candidate W proves about an attention SVM, with no solver to be trusted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from attncore.svm.bounds import dual_norm
from attncore.svm.constraints import assemble, check, margins, smallest_margin
from attncore.svm.solve import solve_rows
from attncore.validation import as_tensor, common, one_of


@dataclass(frozen=True)
class Certificate:
    """What `certify` proves about a candidate W; every field has the batch shape (...).

    Attributes
    ----------
    lower, upper : Tensor
        ``lower <= |W^mm| <= upper``. Upper is inf when W does not have positive margins. Both are inf when the
        problem is infeasible, both 0 when there is no constraint (T = 1).
    gap : Tensor
        ``(upper - lower) / upper``; 1 when only the upper bound is infinite, nan when infeasible.
    cosine : Tensor
        Proved lower bound of ``<W, W^mm> / (|W|_F |W^mm|_F)``. For "fro" it is ``lower / upper``: the scaled
        candidate ``V = W / min margin`` is feasible, so ``<W^mm, V> >= |W^mm|^2`` by optimality. It is -1 (which
        says nothing) when W has no positive margins, and nan when there is no direction to compare with: for
        "nuc", whose minimiser need not be unique, and for infeasible or unconstrained problems.
    margin : Tensor
        Smallest margin of W as given (inf when there is no constraint).
    """

    lower: torch.Tensor
    upper: torch.Tensor
    gap: torch.Tensor
    cosine: torch.Tensor
    margin: torch.Tensor


def certify(W, X, z, selected, norm="fro", dual=None) -> Certificate:
    r"""Bounds on the attention SVM's value, and on the angle to its solution, proved by a candidate W.

    .. math:: \frac{1^\top\lambda}{|\sum \lambda_{it}(x_{i,a_i}-x_{it})z_i^\top|_{dual}} \le |W^{mm}|
        \le \frac{|W|}{\min \text{margin}(W)}, \qquad
        \cos(W, W^{mm}) \ge \frac{\text{lower}}{\text{upper}} \quad (\text{"fro"})

    with the Frobenius norm as its own dual, and the operator norm as the dual of the nuclear norm.

    Parameters
    ----------
    W : array_like (..., d, d)
        The candidate, of any scale. Its leading axes broadcast with those of the problem: a whole trajectory
        (R, ..., d, d) may be certified at once, and the problems are still solved once.
    X, z, selected, norm
        As in `attention_svm`.
    dual : array_like (..., n, T), optional
        Dual weights >= 0 that give the lower bound; entries at selected tokens are ignored. By default the
        problem is solved for them. Weights that combine the constraints to zero prove infeasibility
        (lower = inf); all-zero weights give lower = 0.

    Returns
    -------
    Certificate

    Raises
    ------
    TypeError, ValueError
        For bad input: shapes that do not match, a negative entry of `dual`.

    References
    ----------
    Weak duality for the attention SVM of arXiv 2308.16898; the proof is in the book.

    Examples
    --------
    >>> proof = certify([[1.0, 0.5], [0.0, 0.0]], [[[2.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0]], [0])
    >>> float(proof.lower), round(float(proof.upper), 4), round(float(proof.cosine), 4)
    (0.5, 0.559, 0.8944)
    """
    one_of(norm, "norm", ("fro", "nuc"))
    W, X, z = common(W=W, X=X, z=z)
    X, z, selected = check(X, z, selected)
    if X.shape[-2] == 1:
        least = margins(W, X, z, selected).new_full(torch.broadcast_shapes(W.shape[:-2], X.shape[:-3]), torch.inf)
        zero = torch.zeros_like(least)
        return Certificate(zero, zero, zero, torch.full_like(least, torch.nan), least)
    least = smallest_margin(W, X, z, selected)
    lower = _lower_bound(X, z, selected, norm, dual).expand_as(least)
    size = torch.linalg.matrix_norm(W, norm)
    upper = torch.where((least > 0) & ~lower.isinf(), size / least, torch.inf)
    gap = torch.where(upper.isinf(), 1.0, (1.0 - lower / upper).clamp(0.0, 1.0))
    cosine = torch.where(least > 0, (lower / upper).clamp(max=1.0), -1.0)
    undefined = lower.isinf()
    gap = torch.where(undefined, torch.nan, gap)
    cosine = torch.where(undefined, torch.nan, cosine) if norm == "fro" else torch.full_like(cosine, torch.nan)
    return Certificate(lower, upper, gap, cosine, least)


def _lower_bound(X, z, selected, norm, dual) -> torch.Tensor:
    rows = assemble(X, z, selected)
    if dual is None:
        _, weights, proof, _ = solve_rows(rows, norm, 1e-9)
        weights = np.where(np.isnan(proof), weights, proof)
    else:
        dual = as_tensor(dual, "dual", device=X.device)
        if tuple(dual.shape) != tuple(X.shape[:-1]):
            raise ValueError(f"dual must have shape {tuple(X.shape[:-1])} to match X, got {tuple(dual.shape)}")
        if bool((dual < 0).any()):
            raise ValueError(f"dual must be non-negative, got a smallest entry of {float(dual.min())}")
        weights = rows.collect(dual.cpu().numpy().reshape(-1, *dual.shape[-2:]).astype(np.float64))
    total = weights.sum(axis=(1, 2))
    length = dual_norm(rows.combine(weights), norm)
    reach = (weights * rows.row_norms()).sum(axis=(1, 2))
    vanishes = length <= 1e-12 * reach
    lower = np.where(vanishes, np.where(total > 0, np.inf, 0.0), total / np.where(vanishes, 1.0, length))
    return torch.from_numpy(lower / rows.scale).reshape(X.shape[:-3]).to(X)
