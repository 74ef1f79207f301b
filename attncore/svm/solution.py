"""What an attention-SVM solver returns: a status whose message says what to do, and a certified solution."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property

import torch


class Status(enum.IntEnum):
    """Outcome of one attention-SVM problem.

    >>> Status(0).name, Status.INFEASIBLE.message[:24]
    ('OPTIMAL', 'No W separates the selec')
    """

    OPTIMAL = 0
    APPROXIMATE = 1
    INFEASIBLE = 2

    @property
    def message(self) -> str:
        """One sentence saying what the status means and what to do about it."""
        return _MESSAGES[self]


_MESSAGES = {
    Status.OPTIMAL: "Solved: the certified relative gap is at most tol, so the answer can be used as it stands.",
    Status.APPROXIMATE: "The certified gap is larger than tol: read .gap before using W, and loosen tol or rescale "
    "the data if that gap is good enough.",
    Status.INFEASIBLE: "No W separates the selected tokens: .certificate holds weights that prove it; select other "
    "tokens, or raise the dimension d.",
}


class InfeasibleError(ValueError):
    """Raised when an unbatched attention SVM has no feasible W.

    Attributes
    ----------
    certificate : Tensor (n, T)
        Farkas weights: non-negative, zero at the selected tokens, summing to one, with
        ``sum certificate[i, t] (x_{i,sel_i} - x_it) z_i^T = 0`` up to rounding.
    """

    def __init__(self, message: str, certificate: torch.Tensor):
        super().__init__(message)
        self.certificate = certificate


@dataclass(frozen=True)
class Solution:
    """Solution of one attention SVM, or of a batch of them (leading axes ``...``).

    Where a problem is infeasible ``W``, ``dual``, ``singular_values``, ``gap``, ``max_violation`` and
    ``kkt_residual`` are nan, ``value`` is inf, ``margin`` is 0, ``rank`` is -1 and ``unique`` is False.
    `singular_values` and `rank` are computed from W when first asked for.

    Attributes
    ----------
    W : Tensor (..., d, d)
        The minimiser, scaled so that its smallest margin is 1 (feasible up to rounding).
    value : Tensor (...)
        Its norm, which is an upper bound of the minimum; the minimum is at least ``value * (1 - gap)``.
    margin : Tensor (...)
        ``1 / value``: the distance from 0 to the convex hull of the matrices
        ``(x_{i,sel_i} - x_it) z_i^T`` in the dual norm (inf when there is no constraint, T = 1).
    gap : Tensor (...)
        Certified relative gap ``(ub - lb) / ub`` with ``ub = |W| / min margin`` and
        ``lb = sum dual / |sum dual (x_sel - x_t) z^T|_dual``.
    max_violation : Tensor (...)
        ``max(0, 1 - min margin)``, in units of the margin.
    kkt_residual : Tensor (...)
        Largest of three scaled residuals. Let ``S = sum dual (x_sel - x_t) z^T``. Primal: `max_violation`;
        complementary slackness: ``sum dual (margin - 1) / sum dual``; stationarity: for "fro"
        ``|W - S|_F / |W|_F``, for "nuc" the larger of ``|S|_op - 1`` and ``1 - <S, W> / |W|_*``
        (zero exactly when S is a subgradient of the nuclear norm at W).
        The dual variables are non-negative by construction.
    uniqueness : Tensor (...) int8
        1 where the minimiser is proved unique, 0 where a second one was found (or none exists), -1 where
        neither. "fro": always 1 (strictly convex). "nuc": decided from the face of the dual solution; open
        without strict complementarity, or where the gap is above 1e-9.
    dual : Tensor (..., n, T)
        Dual variables, >= 0 and zero at the selected token. "fro": ``sum dual = value^2`` and ``W = S``;
        "nuc": ``sum dual = value`` and ``|S|_op <= 1`` (the sums up to the gap).
    status : Tensor (...) int8
        Values of `Status`.
    certificate : Tensor (..., n, T)
        Farkas weights of infeasible problems (see `InfeasibleError`), nan where feasible.
    norm : str
        "fro" or "nuc".
    """

    W: torch.Tensor
    value: torch.Tensor
    margin: torch.Tensor
    gap: torch.Tensor
    max_violation: torch.Tensor
    kkt_residual: torch.Tensor
    uniqueness: torch.Tensor
    dual: torch.Tensor
    status: torch.Tensor
    certificate: torch.Tensor
    norm: str

    @cached_property
    def singular_values(self) -> torch.Tensor:
        """Singular values of W in decreasing order, Tensor (..., d); nan where infeasible."""
        found = ~self.W.isnan().any(-1).any(-1)[..., None]
        return torch.where(found, torch.linalg.svdvals(torch.where(found[..., None], self.W, 0.0)), torch.nan)

    @cached_property
    def rank(self) -> torch.Tensor:
        """Numerical rank, Tensor (...) of int64: singular values above ``max(1e-9, sqrt(2 gap))`` of the largest.

        For "fro" ``|W - W^mm|_F <= sqrt(2 gap) |W|_F``, so smaller ones cannot be told from zero; for "nuc" the
        same cut is a convention (`rank_gap` says how clear-cut the answer is). At least 1e-6 in float32, at most
        1e-3. -1 where infeasible.
        """
        floor = 1e-9 if self.W.dtype == torch.float64 else 1e-6
        cut = (2 * self.gap).sqrt().clamp(min=floor, max=1e-3) * self.singular_values[..., 0]
        count = (self.singular_values > cut[..., None]).sum(-1)
        return torch.where(self.status == Status.INFEASIBLE, -1, count)

    @property
    def unique(self) -> torch.Tensor | None:
        """Whether the minimiser is unique, Tensor (...) bool; None where that is open for any problem asked."""
        return None if bool((self.uniqueness < 0).any()) else self.uniqueness == 1

    @cached_property
    def rank_gap(self) -> torch.Tensor:
        """Smallest singular value counted by `rank` over the largest not counted, Tensor (...).

        How clear-cut the rank is: inf when nothing is left out or that is exactly 0, nan where infeasible.
        """
        padded = torch.cat([self.singular_values, torch.zeros_like(self.singular_values[..., :1])], -1)
        at = self.rank.clamp(min=0)[..., None]
        return (padded.gather(-1, (at - 1).clamp(min=0)) / padded.gather(-1, at))[..., 0]

    @property
    def message(self) -> str:
        """What the statuses say, each sentence once, with how many problems it concerns."""
        if self.status.ndim == 0:
            return Status(int(self.status)).message
        codes, counts = self.status.reshape(-1).unique(return_counts=True)
        found = zip(codes.tolist(), counts.tolist(), strict=True)
        return " ".join(f"{count} of {self.status.numel()}: {Status(code).message}" for code, count in found)
