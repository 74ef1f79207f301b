r"""The mean-field gradient flow in closed form, for a column whose competitors are all equally likely (ours).

With the odds ``o = p_k / (1 - p_k) e^{A - B}`` the flow is ``o' = eta p_k (K / (K-1))^2 o^2 / (1 + o)^3``, so

.. math:: F(o) - F(o_0) = p_k \Bigl(\frac{K}{K-1}\Bigr)^2 \eta t, \qquad
          F(o) = -\frac1o + 3 \ln o + 3 o + \frac{o^2}{2}, \quad o_0 = \frac{p_k}{1 - p_k}.

Gradient descent differs by ``O(eta)``, a finite prompt by ``O(1/N)`` at a fixed time.
"""

from __future__ import annotations

import torch

from attncore.validation import as_tensor, common, short


def _checked(K, p_k):
    K, p_k = common(K=K, p_k=p_k)
    if bool((K < 2).any()) or bool((K != K.round()).any()):
        raise ValueError(f"K must be whole and at least 2, got {short(K)}")
    if bool(((p_k <= 0) | (p_k >= 1)).any()):
        raise ValueError(f"p_k must lie strictly between 0 and 1, got {short(p_k)}")
    return K.to(torch.float64), p_k.to(torch.float64)


def closed_form(K, p_k, odds) -> torch.Tensor:
    r"""Time ``eta * t`` at which the mean-field flow reaches the odds ``o = Attn_k / (1 - Attn_k)``.

    .. math:: \eta t = \frac{(K-1)^2}{K^2 p_k} \bigl(F(o) - F(o_0)\bigr).

    Parameters
    ----------
    K : int or array_like (...)
        Number of features.
    p_k : float or array_like (...)
        Probability of the column's feature; the others share the rest equally.
    odds : float or array_like (...)
        Odds to reach, at least ``p_k / (1 - p_k)``, where the flow starts.

    Raises
    ------
    ValueError
        If ``K < 2``, `p_k` is outside (0, 1), or `odds` lies below the start.
    """
    K, p_k = _checked(K, p_k)
    o = as_tensor(odds, "odds", dtype=torch.float64, device=K.device)
    start = p_k / (1 - p_k)
    gain = o - start
    if bool((gain < -1e-14 * start).any()):
        raise ValueError(f"odds must be at least p_k / (1 - p_k), where the flow starts, got {short(odds)}")
    gain = gain.clamp(min=0.0)
    # F(o) - F(o_0), term by term as multiples of o - o_0
    rise = gain / (o * start) + 3 * torch.log1p(gain / start) + 3 * gain + gain * (o + start) / 2
    return (K - 1) ** 2 / (K**2 * p_k) * rise


def odds_at(K, p_k, time) -> torch.Tensor:
    """Odds ``Attn_k / (1 - Attn_k)`` of the mean-field flow at ``eta * t = time``: the inverse of `closed_form`.

    ``F`` is strictly increasing in ``log o`` with slope ``(1 + o)^3 / o``, so a Newton iteration kept inside a
    bracket converges for every time; it stops at relative accuracy 1e-14 or so.

    Raises
    ------
    ValueError
        If a time is negative, ``K < 2`` or `p_k` is outside (0, 1).
    """
    K, p_k = _checked(K, p_k)
    time = as_tensor(time, "time", dtype=torch.float64, device=K.device)
    if bool((time < 0).any()):
        raise ValueError(f"time must not be negative, got {time.min().item():g}")
    K, p_k, time = torch.broadcast_tensors(K, p_k, time)
    start = p_k / (1 - p_k)
    target = p_k * (K / (K - 1)) ** 2 * time
    low = torch.zeros_like(target)
    # F(o) - F(o_0) is at least (o^2 - o_0^2) / 2, which bounds the odds from above
    high = 0.5 * torch.log1p(2 * target / start**2)
    y = high.clone()
    for _ in range(100):
        gain = start * torch.expm1(y)
        o = start + gain
        value = gain / (o * start) + 3 * y + 3 * gain + gain * (o + start) / 2 - target
        low, high = torch.where(value < 0, y, low), torch.where(value >= 0, y, high)
        step = y - value * o / (1 + o) ** 3
        new = torch.where((step > low) & (step < high), step, 0.5 * (low + high))
        # the last Newton steps land on the bracket's edge: keep them
        new = torch.where((step == low) | (step == high), step, new)
        done = bool(((new - y).abs() <= 4e-16 * y.abs()).all())
        y = new
        if done:
            break
    return start * torch.exp(y)
