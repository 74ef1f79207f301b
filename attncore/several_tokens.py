r"""Descent with a nonlinear head, and how far it agrees with the generalised attention SVM.

The experiment of arXiv 2308.16898 on nonlinear heads: random problems with a fixed hidden layer of ReLU units, a
filter that accepts clear selections only, and the fit :math:`W \approx W_{fin} + C\,W^{mm}` for the accepted runs.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np
import torch

from attncore.attention import softmax_attention
from attncore.data import TokenSelection, batch_shape, check_problem, problem_generators, token_selection
from attncore.heads import Head, relu_head
from attncore.svm import Status, attention_svm_multi, best_combination, finite_part
from attncore.validation import placement, positive_int, real

__all__ = ["Outcome", "ReluProblems", "Selection", "compare_selection", "relu_problems"]

STREAM = 11  # of the hidden layers and starts; token_selection draws from stream 0


class Outcome(enum.IntEnum):
    """What the filter says about a run.

    >>> Outcome(2).name, Outcome(2).message[:36]
    ('UNCLEAR', 'Some attention weight is neither cle')
    """

    ACCEPTED = 0
    NO_NEGATIVE_LABEL = 1
    UNCLEAR = 2
    NOTHING_DROPPED = 3
    INFEASIBLE = 4

    @property
    def message(self) -> str:
        """One sentence saying what the outcome means."""
        return _MESSAGES[self]


_MESSAGES = {
    Outcome.ACCEPTED: "Every weight is clearly kept or clearly dropped, one at least is dropped, the SVM is feasible.",
    Outcome.NO_NEGATIVE_LABEL: "All labels are +1, for which a convex head selects single tokens.",
    Outcome.UNCLEAR: "Some attention weight is neither clearly kept nor clearly dropped.",
    Outcome.NOTHING_DROPPED: "No token is dropped: a finite solution, without a direction to compare with.",
    Outcome.INFEASIBLE: "The SVM of the selected sets is infeasible.",
}


@dataclass(frozen=True)
class ReluProblems:
    """Problems with the head ``h(a) = sum relu(V a)``.

    Attributes
    ----------
    prob : TokenSelection
        Tokens, queries, labels; its head is the vector of ones that sums the units.
    hidden : (..., d, d)
        The matrices V: Gaussian entries, then scaled to Frobenius norm 1.
    start : (..., d, d)
        Starting matrices W, entries uniform between -1 and 1 over the root of d.
    """

    prob: TokenSelection
    hidden: torch.Tensor
    start: torch.Tensor

    @property
    def head(self) -> Head:
        """The head, for :func:`attncore.training.train`."""
        return relu_head(self.hidden)


def relu_problems(n: int, T: int, d: int, seed: int = 0, batch=(), dtype=None, device=None,
                  start: int = 0) -> ReluProblems:
    """Draw problems as the published experiment on nonlinear heads does.

    Parameters
    ----------
    n, T, d, seed, batch, dtype, device, start
        As in :func:`attncore.data.token_selection`, which draws tokens, queries and labels.

    Returns
    -------
    ReluProblems

    Raises
    ------
    TypeError, ValueError
        As :func:`attncore.data.token_selection`.

    References
    ----------
    arXiv 2308.16898, experiments on nonlinear heads; the start is the default one of a linear layer in PyTorch.

    Examples
    --------
    >>> drawn = relu_problems(n=3, T=4, d=5, seed=1, batch=2)
    >>> drawn.hidden.shape, drawn.hidden.norm(dim=(1, 2)).tolist()
    (torch.Size([2, 5, 5]), [1.0, 1.0])
    """
    prob = token_selection(n, T, d, seed=seed, batch=batch, dtype=dtype, device=device, start=start)
    shape, d = batch_shape(batch), positive_int(d, "d")
    place, count = placement(dtype, device), math.prod(shape)
    hidden, first = np.empty((2, count, d, d))
    for b, rng in enumerate(problem_generators(seed, count, STREAM, start)):
        hidden[b] = rng.standard_normal((d, d))
        first[b] = rng.uniform(-1, 1, (d, d)) / math.sqrt(d)
    hidden /= np.linalg.norm(hidden, axis=(1, 2), keepdims=True)
    hidden, first = (torch.tensor(a, **place).reshape(*shape, d, d) for a in (hidden, first))
    return ReluProblems(TokenSelection(prob.X, prob.z, prob.y, torch.ones_like(prob.v)), hidden, first)


@dataclass(frozen=True)
class Selection:
    """What a matrix selects, what the filter says, and the fit where it accepts (nan elsewhere).

    Attributes
    ----------
    outcome : (...) int8
        Values of `Outcome`; the first rule that refuses decides.
    attention : (..., n, T)
    kept : (..., n, T) bool
        Weights above `high`.
    gamma : (...)
        Largest weight that is not kept.
    correlation : (...)
        Of W with ``W_fin + C W_mm``, C fitted.
    correlation_direction : (...)
        Of W with ``W_mm`` alone.
    """

    outcome: torch.Tensor
    attention: torch.Tensor
    kept: torch.Tensor
    gamma: torch.Tensor
    correlation: torch.Tensor
    correlation_direction: torch.Tensor

    @property
    def accepted(self) -> torch.Tensor:
        """(...) bool, whether the filter accepts."""
        return self.outcome == Outcome.ACCEPTED


def compare_selection(prob: TokenSelection, W, low: float = 1e-6, high: float = 1e-3,
                      unclear: bool = False) -> Selection:
    r"""Filter runs as the published experiment does, and fit the accepted ones by the generalised SVM.

    A run is accepted if some label is -1, no attention weight lies in ``(low, high]``, some weight is at most `low`,
    and the SVM that selects the weights above `high` (`attncore.svm.attention_svm_multi`) is feasible.
    Then :math:`W_{fin}` reproduces the log-ratios of the kept weights, and C is fitted by least squares.

    Parameters
    ----------
    prob : TokenSelection
    W : (..., d, d)
        Trained matrices of these problems.
    low, high : float
        Weights at most `low` are dropped, weights above `high` kept; ``0 <= low <= high < 1/T``, so that every
        sequence keeps a token.
    unclear : bool
        Fit the runs with the outcome `Outcome.UNCLEAR` as well, with the sets of weights above `high`.

    Returns
    -------
    Selection

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value and what was expected.

    References
    ----------
    arXiv 2308.16898, experiments on nonlinear heads.

    Examples
    --------
    Tokens e_1 and e_2 level, e_3 far below; label -1.

    >>> prob = TokenSelection([[[1, 0, 0], [0, 1, 0], [0, 0, 1]]], [[1, 0, 0]], [-1], [1, 1, 1])
    >>> seen = compare_selection(prob, [[30, 0, 0], [30, 0, 0], [0, 0, 0]])
    >>> seen.kept.tolist(), bool(seen.accepted), round(float(seen.correlation), 3)
    ([[True, True, False]], True, 0.577)
    """
    check_problem(prob)
    low, high = real(low, "low", at_least=0.0), real(high, "high", at_least=0.0)
    T = prob.X.shape[-2]
    if not low <= high < 1 / T:
        raise ValueError(f"low and high must satisfy low <= high < 1/{T}, got {low} and {high}")
    s = softmax_attention(prob.X, W, prob.z)
    W = torch.as_tensor(W).to(s).expand(*s.shape[:-2], *prob.X.shape[-1:], prob.X.shape[-1])
    kept = s > high
    outcome = _filtered(prob, s, low, high)
    take = (outcome == Outcome.ACCEPTED) | ((outcome == Outcome.UNCLEAR) & ~kept.all(-1).all(-1) & unclear)
    correlations, feasible = _fit(*(a[take] for a in (prob.X, prob.z, kept, s, W)))
    refused = take.clone()
    refused[take] = ~feasible
    outcome[refused & (outcome == Outcome.ACCEPTED)] = Outcome.INFEASIBLE
    found = s.new_full((2, *take.shape), torch.nan)
    found[:, take] = correlations
    return Selection(outcome, s, kept, s.masked_fill(kept, 0.0).amax((-2, -1)), *found)


def _filtered(prob, s, low, high):
    """The outcome (...) of the rules that look at labels and weights; the last written decides."""
    outcome = torch.zeros(s.shape[:-2], dtype=torch.int8, device=s.device)
    outcome[~(s <= low).any(-1).any(-1)] = Outcome.NOTHING_DROPPED
    outcome[((s > low) & (s <= high)).any(-1).any(-1)] = Outcome.UNCLEAR
    outcome[(prob.y > 0).all(-1)] = Outcome.NO_NEGATIVE_LABEL
    return outcome


def _fit(X, z, kept, s, W):
    """Correlations (2, B), nan where infeasible, and feasibility (B,)."""
    if not len(X):
        return s.new_empty(2, 0), kept.new_empty(0)
    svm = attention_svm_multi(X, z, kept)
    feasible = svm.status == Status.OPTIMAL
    found = s.new_full((2, len(X)), torch.nan)
    if bool(feasible.any()):
        part = finite_part(*(a[feasible] for a in (X, z, kept, s)))
        fit = best_combination(W[feasible], part.W, svm.W[feasible])
        found[:, feasible] = torch.stack([fit.correlation, fit.correlation_direction])
    return found, feasible
