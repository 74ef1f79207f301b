"""Attention SVMs in which some sequences need only keep their choice: margin at least 0 in place of 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from attncore.svm.constraints import Constraints, assemble, check
from attncore.svm.quadratic import least_norm
from attncore.validation import short


@dataclass(frozen=True)
class KeptSolution:
    """Solution of `attention_svm_kept`; fields have the batch shape (...) in front.

    Attributes
    ----------
    W : (..., d, d)
        The minimiser; nan where infeasible.
    value : (...)
        Its Frobenius norm; inf where infeasible.
    gap : (...)
        Relative gap to the lower bound ``sum lam / |sum lam (x_a - x_t) z^T|_F``, ``lam >= 0`` (first sum over the
        sequences that are not kept), plus the largest violation of a kept constraint relative to the value.
    """

    W: torch.Tensor
    value: torch.Tensor
    gap: torch.Tensor


def attention_svm_kept(X, z, selected, kept) -> KeptSolution:
    r"""Solve the Frobenius attention SVM with homogeneous constraints for the sequences in `kept`.

    .. math:: \min_W |W|_F \quad\text{subject to}\quad
        (x_{i,a_i} - x_{it})^\top W z_i \ge \begin{cases} 0 & i \text{ kept} \\ 1 & \text{else} \end{cases}
        \qquad (t \ne a_i)

    In a stack of attention layers the kept sequences are the queries that no layer above reads: what they select
    matters to the tokens that are handed on, but not by what margin they select it.

    Parameters
    ----------
    X, z, selected
        As in `attention_svm`.
    kept : array_like of bool (..., n)
        At least one sequence of each problem must not be kept.

    Returns
    -------
    KeptSolution
        Solved in float64 by DAQP, problem after problem: meant for up to some hundred constraints.

    Raises
    ------
    TypeError, ValueError
        For bad input. Infeasible problems raise nothing: W is nan, the value inf and the gap 1.

    References
    ----------
    Ours; derived in the book's page on stacked layers.

    Examples
    --------
    The second sequence only has to keep its choice of (0, 0): the first constraint already sees to it.

    >>> X = [[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [-1.0, 0.0]]]
    >>> attention_svm_kept(X, [[1.0, 0.0]] * 2, [0, 0], [False, True]).W.tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    kept = torch.as_tensor(kept)
    if kept.dtype != torch.bool:
        raise TypeError(f"kept must be boolean, got dtype {kept.dtype}")
    X, z, selected = check(X, z, selected)
    try:
        kept = kept.cpu().expand(selected.shape)
    except RuntimeError:
        raise ValueError(f"kept must have shape {tuple(selected.shape)}, got {short(kept)}") from None
    if X.shape[-2] < 2:
        raise ValueError(f"X must have at least 2 tokens a sequence, got {short(X)}")
    if bool(kept.all(-1).any()):
        raise ValueError("kept must leave out at least one sequence of each problem, got one with all kept")
    rows, free = assemble(X, z, selected), kept.reshape(-1, kept.shape[-1]).numpy()
    solved = [_solve(rows, b, free[b]) for b in range(len(rows))]
    W, value, gap = (np.stack(part) for part in zip(*solved, strict=True))
    batch = X.shape[:-3]
    return KeptSolution(*(torch.from_numpy(part).to(X).reshape(batch + part.shape[1:])
                          for part in (W / rows.scale[:, None, None], value / rows.scale, gap)))


def _solve(rows: Constraints, b: int, free: np.ndarray):
    u, z = rows.u[b], rows.z[b]
    A = (u[..., :, None] * z[:, None, None, :]).reshape(-1, u.shape[-1] * z.shape[-1])
    bound = np.repeat(np.where(free, 0.0, 1.0), u.shape[1])
    size = np.linalg.norm(A, axis=1)
    if (size[bound > 0] > 0).all():
        A, bound = A[size > 0], bound[size > 0]
        unit, scaled = A / size[size > 0, None], bound / size[size > 0]
        lam = least_norm(unit, scaled / scaled.max())
        if lam is not None:
            return _certified(unit, scaled, lam * scaled.max(), u.shape[-1])
    return np.full((u.shape[-1],) * 2, np.nan), np.inf, 1.0


def _certified(unit, bound, lam, d):
    """W with its smallest strict margin 1, its norm, and the gap between both bounds."""
    w = lam @ unit
    reached = unit @ w
    w = w / (reached[bound > 0] / bound[bound > 0]).min()
    broken = np.maximum(0.0, -(unit @ w)[bound == 0])
    value, length = np.linalg.norm(w), np.linalg.norm(lam @ unit)
    lower = lam @ bound / length
    return w.reshape(d, d), value, max(0.0, 1 - lower / value) + broken.max(initial=0.0) / value
