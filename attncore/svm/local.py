"""Locally optimal tokens: which selections gradient descent can be caught by."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, replace

import torch

from attncore.svm.constraints import check, margins, others
from attncore.svm.solution import Solution, Status
from attncore.svm.solve import attention_svm
from attncore.validation import as_tensor, real, short


def solve_marked(X, z, selected, norm) -> Solution:
    """`attention_svm` of checked arguments, which marks a single infeasible problem as it does one of a batch."""
    batched = attention_svm(X[None], z[None], selected[None], norm)
    parts = {part.name: getattr(batched, part.name) for part in fields(batched)}
    return replace(batched, **{name: part[0] for name, part in parts.items() if isinstance(part, torch.Tensor)})


class Verdict(enum.IntEnum):
    """What a selection of tokens is.

    >>> Verdict(1).name, Verdict.LOCAL.message[:35]
    ('LOCAL', 'Beats every support token, not ever')
    """

    GLOBAL = 0
    LOCAL = 1
    NEITHER = 2

    @property
    def message(self) -> str:
        """One sentence saying what the verdict means."""
        return _MESSAGES[self]


_MESSAGES = {
    Verdict.GLOBAL: "The selected token has the highest score in every sequence.",
    Verdict.LOCAL: "Beats every support token, not every token: locally optimal, so descent may converge to it.",
    Verdict.NEITHER: "Some support token scores at least as high, or no W separates the selection.",
}


@dataclass(frozen=True)
class LocalOptimality:
    """Verdict on a selection, with what it rests on.

    Attributes
    ----------
    verdict : Tensor (...) int8
        Values of `Verdict`.
    support : Tensor (..., n, T) bool
        Tokens whose margin under the minimiser is at most ``1 + tol``; False at the selected token and where
        infeasible.
    clearance : Tensor (...)
        Smallest excess ``margin - 1`` among the tokens outside the support (inf when there is none, nan where
        infeasible): a clearance near `tol` means that the support is not clear-cut.
    feasible : Tensor (...) bool
        Whether any W separates the selection. GLOBAL does not need it, LOCAL does.
    norm : str
        The norm whose minimiser defines the support.
    minimiser : str
        Which minimiser that is, in words: the nuclear one need not be unique.
    """

    verdict: torch.Tensor
    support: torch.Tensor
    clearance: torch.Tensor
    feasible: torch.Tensor
    norm: str
    minimiser: str


_MINIMISER = {
    "fro": "the unique Frobenius minimiser",
    "nuc": "the nuclear minimiser that the solver returned; others may have another support",
}


def local_optimality(X, z, scores, selected, norm="fro", tol=1e-6, solution: Solution | None = None):
    r"""Decide whether the selected tokens are globally, locally, or not optimal.

    With :math:`W^{mm}_a` the minimiser of the attention SVM at ``a = selected`` and the support
    :math:`\mathcal T_i = \{t \ne a_i : (x_{i,a_i} - x_{it})^\top W^{mm}_a z_i = 1\}` (by margin, not by
    multiplier), a is *locally optimal* if :math:`\gamma_{i,a_i} > \gamma_{it}` for all
    :math:`t \in \mathcal T_i` and all i; it is *globally optimal* if :math:`\gamma_{i,a_i} \ge \gamma_{it}`
    for all t and i.

    Parameters
    ----------
    X, z, selected, norm
        As in `attention_svm`.
    scores : array_like (..., n, T)
        Token scores ``y_i v^T x_it``.
    tol : float
        A margin up to ``1 + tol`` counts as on the margin. Margins have no unit: the SVM fixes them at 1.
    solution : Solution, optional
        Of the same problems, to save solving them again; its norm takes the place of `norm`.

    Returns
    -------
    LocalOptimality

    Raises
    ------
    TypeError, ValueError
        For bad input. Infeasible selections raise nothing: they are NEITHER unless global.

    References
    ----------
    Locally optimal tokens in arXiv 2308.16898 and arXiv 2306.13596.

    Examples
    --------
    The middle token supports the selection of the first; the far one scores highest but is not in its way.

    >>> X = [[[2.0, 0.0], [0.0, 0.0], [-9.0, 0.0]]]
    >>> Verdict(int(local_optimality(X, [[1.0, 0.0]], [[1.0, 0.0, 5.0]], [0]).verdict)).name
    'LOCAL'
    """
    X, z, selected = check(X, z, selected)
    tol = real(tol, "tol", at_least=0)
    scores = as_tensor(scores, "scores", device=X.device)
    if tuple(scores.shape) != tuple(X.shape[:-1]):
        raise ValueError(f"scores must have shape {tuple(X.shape[:-1])} to match X, got {tuple(scores.shape)}")
    if solution is not None and not isinstance(solution, Solution):
        raise TypeError(f"solution must be a Solution or None, got {short(solution)}")
    if solution is None:
        solution = solve_marked(X, z, selected, norm)
    norm, feasible = solution.norm, solution.status != Status.INFEASIBLE
    margin = margins(torch.where(feasible[..., None, None], solution.W, 0.0), X, z, selected)
    other = others(selected, X.shape[-2])
    support = other & (margin <= 1 + tol) & feasible[..., None, None]
    own = scores.gather(-1, selected[..., None])
    best = (own >= scores).all(-1).all(-1)
    local = feasible & ((own > scores) | ~support).all(-1).all(-1)
    clearance = (margin - 1).masked_fill(~other | support, torch.inf).amin((-2, -1))
    verdict = torch.where(best, Verdict.GLOBAL, torch.where(local, Verdict.LOCAL, Verdict.NEITHER))
    return LocalOptimality(
        verdict.to(torch.int8), support, torch.where(feasible, clearance, torch.nan), feasible, norm, _MINIMISER[norm]
    )
