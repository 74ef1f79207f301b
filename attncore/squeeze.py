"""The excess of the logistic loss over its infimum, and the constants that tie it to the margin.

For every ``W``, with ``m(W)`` the smallest margin at the optimal tokens,

    low * min(1, exp(-m(W)))  <=  L(W) - L*  <=  high * exp(-m(W))

(derived in the course; the regularisation-path theorem of arXiv 2308.16898 rests on such bounds).
"""

from __future__ import annotations

import torch

from attncore.attention import softmax_attention
from attncore.data import TokenSelection, check_problem
from attncore.losses import resolve_loss
from attncore.validation import short


def excess_loss(prob: TokenSelection, W) -> torch.Tensor:
    r"""``L(W) - L*`` for the logistic loss, accurate also where it is far below the rounding unit.

    .. math:: \frac1n\sum_i \log\bigl(1 + \sigma(-\gamma_i^\star)\,(e^{r_i} - 1)\bigr), \qquad
              r_i = \sum_t s_{it}\,(\gamma_i^\star - \gamma_{it}) \ge 0,

    which is ``ell(gamma* - r) - ell(gamma*)`` with the subtraction done inside the logarithm.

    Parameters
    ----------
    prob : TokenSelection
        One problem, or a batch over leading axes.
    W : array_like (..., d, d)
        Leading axes broadcast with those of the problems.

    Returns
    -------
    Tensor (...)
        Non-negative. ``L* = mean_i ell(gamma_i*)``, with ``gamma_i*`` the largest score.
    """
    top = check_problem(prob).scores.amax(-1)
    gaps = top[..., None] - prob.scores
    lack = (softmax_attention(prob.X, W, prob.z) * gaps).sum(-1)
    return (torch.expm1(lack) * torch.sigmoid(-top)).log1p().mean(-1)


def squeeze_constants(prob: TokenSelection) -> tuple[torch.Tensor, torch.Tensor]:
    r"""``(low, high)`` of the squeeze for the logistic loss.

    .. math:: \mathrm{low} = \frac{c\,\delta}{2n}, \qquad \mathrm{high} = C\,\Delta\,(T - 1),

    with ``delta`` and ``Delta`` the smallest and largest gap between the best score and another one,
    ``c = min_i |ell'(gamma_i*)|`` and ``C`` the largest slope of a chord of the loss from ``gamma_i*`` to
    another score of sequence i.

    Parameters
    ----------
    prob : TokenSelection
        One problem, or a batch over leading axes.

    Returns
    -------
    low, high : Tensor (...)

    Raises
    ------
    ValueError
        If a sequence has one token only, or its best score is attained twice: then there is no gap.
    """
    n, T = check_problem(prob).scores.shape[-2:]
    if T < 2:
        raise ValueError(f"prob must have at least 2 tokens a sequence, got T = {T}")
    best = prob.scores.topk(2, -1).values
    top, low = best[..., 0], prob.scores.amin(-1)
    delta = (top - best[..., 1]).amin(-1)
    if not bool((delta > 0).all()):
        raise ValueError(f"prob must have a unique best score in every sequence, got the smallest gap "
                         f"{short(delta.min())}")
    loss = resolve_loss("logistic")
    c = loss.log_slope(top).exp().amin(-1)
    chord = ((loss.value(low) - loss.value(top)) / (top - low)).amax(-1)
    return c * delta / (2 * n), chord * (top - low).amax(-1) * (T - 1)
