"""Loss and gradient of one column by listing every count vector: the definition, for small K and N."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import torch
from scipy.special import gammaln

from attncore.incontext.settings import column_arguments

LIMIT = 2_000_000


def count_vectors(K: int, N: int) -> np.ndarray:
    """All count vectors ``c >= 0`` with ``sum c = N`` over `K` features, shape ``(C(N+K-1, K-1), K)``."""
    number = math.comb(N + K - 1, K - 1)
    if number > LIMIT:
        raise ValueError(f"K={K}, N={N} has {number} count vectors; enumeration takes at most {LIMIT}")
    # stars and bars: a choice of K - 1 bars among N + K - 1 places
    bars = np.fromiter((b for choice in combinations(range(N + K - 1), K - 1) for b in choice), np.int64,
                       number * (K - 1)).reshape(number, K - 1)
    edges = np.concatenate([np.full((number, 1), -1), bars, np.full((number, 1), N + K - 1)], 1)
    return np.diff(edges, axis=1) - 1


def column_gradient(q, p, k: int, N: int) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Exact loss and descent direction of the column ``Q v_k``, by enumeration of all counts.

    With ``a_m = c_m e^{q_m} / sum_j c_j e^{q_j}`` and ``c ~ Multinomial(N, p)``,

    .. math:: loss_k = \tfrac12 E |a - e_k|^2, \qquad
              g_n = p_k E\bigl[a_n (|a|^2 - a_k - a_n + 1\{n = k\})\bigr] .

    Parameters
    ----------
    q : array_like (..., K)
        Logits ``v_m^T Q v_k``.
    p : array_like (K,)
        Probabilities of the features.
    k : int
        The query's feature, 0-based.
    N : int
        Prompt length; there are ``C(N+K-1, K-1)`` counts, at most two million.

    Returns
    -------
    loss_k : Tensor (...)
        Loss given ``x_q = v_k``.
    g : Tensor (..., K)
        ``v_n^T (-grad L) v_k``: ``alpha_k`` at ``n = k``, ``beta_{k,n}`` elsewhere, with ``p_k`` inside; sums to 0.

    Raises
    ------
    ValueError
        If `p` is not a distribution, shapes disagree, `k` is out of range, or there are too many counts.

    Notes
    -----
    Huang, Cheng and Liang (2024), the gradients of the population loss with respect to the attention weights.
    """
    q, p, N = column_arguments(q, p, k, N)
    K = p.shape[0]
    counts = count_vectors(K, N)
    log_number = gammaln(N + 1) - gammaln(counts + 1).sum(1)
    c = torch.as_tensor(counts, dtype=torch.float64, device=p.device)
    weight = torch.exp(torch.as_tensor(log_number, device=p.device) + torch.xlogy(c, p).sum(-1))
    w = torch.exp(q - q.amax(-1, keepdim=True))
    held = c * w[..., None, :]
    a = held / held.sum(-1, keepdim=True)
    square = (a * a).sum(-1, keepdim=True)
    query = torch.nn.functional.one_hot(torch.tensor(k), K).to(a)
    loss = 0.5 * ((a - query) ** 2).sum(-1) @ weight
    g = p[k] * torch.einsum("...cn,c->...n", a * (square - a[..., k:k + 1] - a + query), weight)
    return loss, g
