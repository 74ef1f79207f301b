"""What a trained column does on prompts of any length and any feature probabilities, trained for or not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy import stats

from attncore.incontext.arrays import as_torch, backend
from attncore.incontext.classes import LaplaceIntegral
from attncore.incontext.columns import query_first
from attncore.incontext.settings import column_arguments
from attncore.validation import positive_int, real


class Moments(NamedTuple):
    """Exact moments of one column: `loss` ``(...)``, descent direction `g` and mean `attention`, ``(..., K)``."""

    loss: torch.Tensor
    g: torch.Tensor
    attention: torch.Tensor


def column_moments(q, p, k: int, N: int) -> Moments:
    r"""Exact loss, descent direction and attention of the column ``Q v_k`` on prompts of any size.

    The same numbers as `column_gradient` gives by enumeration, from one integral (relative error below 2e-15 for
    each expectation of a product of attentions), so `K` and `N` may be large.  `p` and `N` need not be those the
    column was trained on.

    Parameters
    ----------
    q : array_like (..., K)
        Logits ``v_m^T Q v_k``.
    p : array_like (K,)
        Feature probabilities of the prompts, zeros allowed.
    k : int
        The query's feature, 0-based.
    N : int
        Prompt length.

    Returns
    -------
    Moments
        ``loss`` is :math:`\tfrac12 E|a - e_k|^2`, ``g`` includes the factor ``p_k``.

    Raises
    ------
    ValueError
        If `p` is not a distribution, shapes disagree or `k` is out of range.
    """
    q, p, N = column_arguments(q, p, k, N)
    K = p.shape[0]
    order = query_first(K)[k]
    shape = tuple(q.shape[:-1])
    # a feature that never occurs must not set the range of the integral: give it the query's logit
    logits = torch.where(p > 0, q, q[..., p.argmax()][..., None])[..., order].cpu().numpy()
    probabilities = np.broadcast_to(p[order].cpu().numpy(), shape + (K,))
    model = LaplaceIntegral(backend(torch.device("cpu")), np.full(shape, float(N)), np.full(shape, float(p[k])),
                            probabilities, np.ones(shape + (K,)))
    g, loss, attention = model.rates(logits)
    back = np.argsort(order)
    return Moments(*(as_torch(v, p.device) for v in (loss, g[..., back], attention[..., back])))


def prompt_law(gap, p_k, N: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    r"""How attention is distributed over prompts, for a column whose competitors' logits are all equal.

    A prompt with `c` copies of ``v_k`` leaves :math:`1 - Attn_k = (N-c) e^{-u} / (c + (N-c) e^{-u})`, ``u = A - B``,
    to the others, and ``c ~ Bin(N, p_k)``.

    Parameters
    ----------
    gap : float
        ``A - B``.
    p_k : float
        Probability of the query's feature.
    N : int
        Prompt length.

    Returns
    -------
    c, probability, residual : Tensor (N + 1,)
        Counts 0 .. N, their probabilities, and ``1 - Attn_k`` for each, decreasing in `c`.
    """
    N, p_k, gap = positive_int(N, "N"), real(p_k, "p_k", above=0.0), real(gap, "gap")
    if p_k >= 1:
        raise ValueError(f"p_k must lie strictly between 0 and 1, got {p_k}")
    c = np.arange(N + 1.0)
    others = (N - c) * np.exp(-gap)
    return torch.from_numpy(c), torch.from_numpy(stats.binom.pmf(c, N, p_k)), torch.from_numpy(others / (c + others))
