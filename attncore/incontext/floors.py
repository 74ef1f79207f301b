r"""Loss at the start and its infimum, for a column and for the whole population loss.

A prompt that does not contain ``v_k`` cannot answer a query ``v_k``.  For such a prompt
``loss = 1/2 (1 + sum_m a_m^2)``, and since all others can be answered in the limit,

.. math:: floor_k = \tfrac12 (1 - p_k)^N \bigl(1 + \min_q E[\textstyle\sum_{m \ne k} a_m^2 \mid c_k = 0]\bigr),

an infimum that no finite ``Q`` attains.  With equally likely competitors the minimum is at equal logits, where
the expectation is ``1/N + (1 - 1/N) / (K - 1)`` (proved in the book, page "Balanced features: two phases").
Otherwise it is found numerically.  ``(1 - p_k)^N`` is computed in the log domain.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import optimize

from attncore.incontext.arrays import NUMPY, as_torch
from attncore.incontext.classes import LaplaceIntegral
from attncore.incontext.settings import Settings, distribution
from attncore.validation import as_tensor, positive_int


def initial_loss(p, N=None) -> torch.Tensor:
    r"""Population loss at ``Q = 0``: :math:`L(0) = \tfrac12 (1 + 1/N)(1 - \sum_k p_k^2)`.

    Parameters
    ----------
    p : array_like (..., K)
        Probabilities of the features.
    N : int or None
        Prompt length; None for the limit ``N -> infinity``.

    Returns
    -------
    Tensor (...)

    Raises
    ------
    ValueError
        If `p` is not a distribution or `N` is below 1.
    """
    p = distribution(p)
    longer = 0.0 if N is None else 1.0 / positive_int(N, "N")
    return 0.5 * (1 + longer) * (1 - (p * p).sum(-1))


def log_missing(p_k, N) -> torch.Tensor:
    """``log P(c_k = 0) = N log(1 - p_k)``, finite where ``(1 - p_k)^N`` underflows.

    Parameters
    ----------
    p_k : float or array_like (...)
        Probability of the feature, from 0 to 1.
    N : int or array_like (...)
        Prompt length, at least 1.

    Returns
    -------
    Tensor (...)
        float64; -inf where ``p_k = 1``.

    Raises
    ------
    ValueError
        If a probability or a length is out of range.
    """
    p_k = as_tensor(p_k, "p_k", dtype=torch.float64)
    N = as_tensor(N, "N", dtype=torch.float64, device=p_k.device)
    if bool(((p_k < 0) | (p_k > 1)).any()):
        raise ValueError(f"p_k must lie in [0, 1], got values from {float(p_k.min()):g} to {float(p_k.max()):g}")
    if bool((N < 1).any()):
        raise ValueError(f"N must be at least 1, got {float(N.min()):g}")
    return N * torch.log1p(-p_k)


class _MissingPrompts(LaplaceIntegral):
    """Prompts without ``v_k``: ``1/2 E sum_m a_m^2`` and its gradient over the classes of competitors.

    The query's class is kept with probability zero, so the parent's integral applies: with ``a_k = 0`` its
    ``loss_k`` is ``1/2 E[1 + sum a^2]`` and its ``beta`` is ``E[a_n (S - a_n)]``, minus the gradient.
    """

    def value_and_slope(self, logits: np.ndarray) -> tuple[float, np.ndarray]:
        g, loss, _ = self.rates(np.concatenate([logits[:1], logits]))
        return 2 * float(loss) - 1, -2 * g[1:] * self.J[1:]


def smallest_square_sum(p_others: np.ndarray, J: np.ndarray, N: float) -> float:
    """``min_q E[sum_m a_m^2]`` over prompts of `N` tokens drawn from classes of probabilities `p_others`, sizes `J`.

    Equal logits are optimal for equal probabilities; otherwise a quasi-Newton descent starts there.
    """
    keep = J > 0
    p_others, J = p_others[keep], J[keep]
    p_others = p_others / (J * p_others).sum()
    start = 1 / N + (1 - 1 / N) * float((J * p_others**2).sum())
    if len(J) == 1 or np.ptp(p_others) == 0 or N == 1:
        return start
    model = _MissingPrompts(NUMPY, N, 1.0, np.concatenate([[0.0], p_others]), np.concatenate([[1.0], J]))
    # the logits are defined up to a constant: the last class keeps logit zero
    def objective(free):
        value, slope = model.value_and_slope(np.append(free, 0.0))
        return value, slope[:-1]

    best = optimize.minimize(objective, np.zeros(len(J) - 1), jac=True, method="L-BFGS-B",
                             options={"gtol": 1e-9, "ftol": 1e-16})
    return min(start, float(best.fun))


def column_floors(settings: Settings, name: str) -> torch.Tensor:
    """Infimum of ``loss_k`` for a kind of column, ``(...)`` (``(..., K)`` for "general"); 0 in the mean field."""
    p_k, _ = settings.share(name)
    if settings.N is None:
        return torch.zeros_like(p_k)
    inner = np.zeros(tuple(p_k.shape))
    for index in np.ndindex(*p_k.shape):
        where = index[:-1] if name == "general" else index
        K, N, own = int(settings.K[where]), settings.N[where].item(), p_k[index].item()
        if name == "general":
            others, J = np.delete(p_k[where].cpu().numpy(), index[-1]), np.ones(K - 1)
        elif name == "under":
            others, J = np.array([settings.p1[where].item(), own]), np.array([1.0, K - 2.0])
        else:
            others, J = np.array([1.0]), np.array([K - 1.0])
        # where (1 - p_k)^N underflows the product is zero whatever the minimum is
        if float(log_missing(own, N)) > -700:
            inner[index] = smallest_square_sum(others, J, N)
    N = settings.N[..., None] if name == "general" else settings.N
    return 0.5 * torch.exp(log_missing(p_k, N)) * (1 + as_torch(inner, p_k.device))
