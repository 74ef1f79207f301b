r"""The loss gradient with respect to attention logits, in a form that survives saturation.

For a sequence with attention ``s = softmax(L)`` and token slopes ``p_t = x_t^T grad h(a)``,

    d ell(y h(a)) / d L_t  =  ell'(u) y s_t (p_t - f),   f = sum_u s_u p_u,   u = y h(a).

As attention saturates, ``p_t - f`` of the chosen token becomes a difference of nearly equal numbers, and
the computed gradient becomes rounding noise. With ``t*`` the token of the largest logit and
``D_t = p_t - p_{t*}``, the same gradient is

    ell'(u) y s_t (D_t - e),   e = sum_u s_u D_u = f - p_{t*},

where ``D_{t*} = 0`` exactly and `e` is a sum of small terms: this is ``s_t sum_u s_u (p_t - p_u)``
without the T^2 differences. The factor ``exp(m_i) = max_t exp(L_t - L_{t*})`` over tokens with ``D_t != 0``
is taken out of each sequence, and the largest factor out of all of them, so that nothing underflows: the
gradient is returned as a mantissa and the logarithm of its scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attncore.data import TokenSelection
from attncore.heads import Head, resolve_head
from attncore.losses import Loss, resolve_loss
from attncore.validation import common, one_of, short


@dataclass(frozen=True)
class LogitGradient:
    """Gradient of the mean loss with respect to the logits: ``exp(log_scale) * mantissa``.

    Attributes
    ----------
    mantissa : (..., n, T)
        With ``gradient="exact"`` its largest contributing factor has been scaled to one.
    log_scale : (...)
        One a problem; 0 with ``gradient="naive"``.
    tail : (..., n)
        Probability outside the largest entry, ``1 - max_t s_it``, computed without cancellation.
    """

    mantissa: torch.Tensor
    log_scale: torch.Tensor
    tail: torch.Tensor


def attended_margin(s, X, y, v, head: Head):
    """Margins ``u_i = y_i h(X_i^T s_i)`` (..., n) and token slopes ``p_it = x_it^T grad h`` (..., n, T)."""
    a = (s.unsqueeze(-2) @ X).squeeze(-2)
    u = y * head.value(a, v.unsqueeze(-2))
    slope = head.gradient(a, v.unsqueeze(-2)).expand_as(a)
    return u, (X @ slope.unsqueeze(-1)).squeeze(-1)


def exact_gradient(L, X, y, v, head: Head, loss: Loss) -> LogitGradient:
    """The log-space form of the module's docstring, for tensors of matching shapes."""
    top, index = L.max(-1, keepdim=True)
    gap = L - top
    r = gap.exp()
    Z = r.sum(-1, keepdim=True)
    u, p = attended_margin(r / Z, X, y, v, head)
    D = p - p.gather(-1, index)
    m = gap.masked_fill(D == 0, -torch.inf).amax(-1, keepdim=True)
    weight = (m + loss.log_slope(u).unsqueeze(-1))
    log_scale = weight.amax(-2, keepdim=True)
    log_scale = log_scale.masked_fill(log_scale.isinf(), 0.0)
    # A sequence whose differences all vanish has m = -inf and no gradient: its weight below is exp(-inf) = 0.
    rescaled = (gap - m.masked_fill(m.isinf(), 0.0)).clamp(max=0).exp() * D
    e = rescaled.sum(-1, keepdim=True) / Z
    factor = (weight - log_scale).exp() * (-y / y.shape[-1]).unsqueeze(-1) / Z
    tail = (Z.squeeze(-1) - 1) / Z.squeeze(-1)
    return LogitGradient((rescaled - r * e) * factor, log_scale.squeeze(-1).squeeze(-1), tail)


def naive_gradient(L, X, y, v, head: Head, loss: Loss) -> LogitGradient:
    """The usual form ``ell'(u) y s (p - f)``, which turns to noise as attention saturates."""
    s = torch.softmax(L, -1)
    u, p = attended_margin(s, X, y, v, head)
    f = (s * p).sum(-1, keepdim=True)
    factor = -loss.log_slope(u).exp() * y / y.shape[-1]
    mantissa = factor.unsqueeze(-1) * s * (p - f)
    return LogitGradient(mantissa, L.new_zeros(L.shape[:-2]), 1 - s.amax(-1))


FORMS = {"exact": exact_gradient, "naive": naive_gradient}


def logit_gradient(prob: TokenSelection, logits, head="linear", loss="logistic", gradient: str = "exact"):
    """Gradient of ``(1/n) sum_i ell(y_i h(X_i^T softmax(L_i)))`` with respect to the logits ``L``.

    Parameters
    ----------
    prob : TokenSelection
    logits : (..., n, T)
        One for each token of `prob`.
    head, loss
        As in :func:`attncore.training.train`.
    gradient : {"exact", "naive"}
        The form that survives saturation, or the usual one.

    Returns
    -------
    LogitGradient
        ``exp(log_scale) * mantissa`` is the gradient; the gradient with respect to W is
        ``sum_it (d/dL_it) x_it z_i^T``.
    """
    if not isinstance(prob, TokenSelection):
        raise TypeError(f"prob must be a TokenSelection, got {short(prob)}")
    logits, X = common(logits=logits, X=prob.X)
    if logits.shape != X.shape[:-1]:
        raise ValueError(f"logits must have shape {tuple(X.shape[:-1])} to match prob, got {short(logits)}")
    form = FORMS[one_of(gradient, "gradient", FORMS)]
    return form(logits, X, prob.y, prob.v, resolve_head(head), resolve_loss(loss))
