r"""The count level: attention sees a prompt only through how often each feature occurs.

``c ~ Multinomial(N, p)`` replaces the tokens and ``w`` is averaged out exactly
(``E_w (yhat - <w, v_k>)^2 = |a - e_k|^2``), so a prompt costs ``O(K)`` and no autograd.
"""

from __future__ import annotations

import torch


def count_step(q: torch.Tensor, counts: torch.Tensor, query: torch.Tensor):
    r"""Losses, attention and descent direction of sampled counts.

    Parameters
    ----------
    q : Tensor (K, K)
        ``V^T Q V``, entry ``[n, k] = v_n^T Q v_k``.
    counts : Tensor (B, K)
        Counts of each feature in a prompt.
    query : Tensor (B,)
        Feature of each prompt's query.

    Returns
    -------
    losses : Tensor (B,)
        :math:`\tfrac12 |a - e_k|^2` with :math:`a_m = c_m e^{q_{mk}} / \sum_j c_j e^{q_{jk}}`.
    g : Tensor (K, K)
        Mean over prompts of :math:`a_n (|a|^2 - a_k - a_n + 1\{n=k\})` in column k, minus the gradient.
    a : Tensor (B, K)
        Attention to each feature.
    """
    a = torch.softmax(counts.log() + q.T[query], -1)
    square = (a * a).sum(-1, keepdim=True)
    at_query = query[:, None]
    a_k = a.gather(1, at_query)
    slope = a * (square - a_k - a)
    slope.scatter_add_(1, at_query, a_k)
    g = torch.zeros_like(q).index_add_(0, query, slope).T / len(query)
    return 0.5 * (square - 2 * a_k + 1)[:, 0], g, a
