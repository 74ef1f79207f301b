"""Softmax attention with one query per sequence: logits, attention maps, attended vectors, and a module.

The model of Ataee Tarzanagh, Li, Thrampoulidis and Oymak, *Transformers as Support Vector Machines*
(arXiv 2308.16898): ``f(X_i) = v^T X_i^T softmax(X_i W z_i)`` with ``W = K Q^T``. The functions here are
differentiable and batched over leading axes; :mod:`attncore.training` has the fast path for ensembles.
"""

from __future__ import annotations

import torch
from torch import nn

from attncore.validation import broadcast_batch, common, one_of, positive_int, short

__all__ = ["SelectionAttention", "attend", "attention_logits", "softmax_attention"]


def attention_logits(X, W, z) -> torch.Tensor:
    """Attention logits ``x_it^T W z_i``.

    Parameters
    ----------
    X : (..., n, T, d)
        Tokens.
    W : (..., d, d)
        Key-query matrix; the leading axes of all three broadcast.
    z : (..., n, d)
        Queries.

    Returns
    -------
    torch.Tensor, (..., n, T)

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> attention_logits([[[1.0, 0.0], [0.0, 1.0]]], [[2.0, 0.0], [0.0, 3.0]], [[1.0, 1.0]]).tolist()
    [[2.0, 3.0]]
    """
    X, W, z = common(X=X, W=W, z=z)
    if X.ndim < 3:
        raise ValueError(f"X must have shape (..., n, T, d), got {short(X)}")
    n, _, d = X.shape[-3:]
    if z.ndim < 2 or z.shape[-2:] != (n, d):
        raise ValueError(f"z must have shape (..., {n}, {d}) to match X, got {short(z)}")
    if W.ndim < 2 or W.shape[-2:] != (d, d):
        raise ValueError(f"W must have shape (..., {d}, {d}) to match X, got {short(W)}")
    broadcast_batch(X=X.shape[:-3], W=W.shape[:-2], z=z.shape[:-2])
    keyed = z @ W.mT
    return (X @ keyed.unsqueeze(-1)).squeeze(-1)


def softmax_attention(X, W, z) -> torch.Tensor:
    """Attention maps ``softmax_t(x_it^T W z_i)``.

    Returns a tensor (..., n, T). Parameters and errors as in :func:`attention_logits`.
    """
    return torch.softmax(attention_logits(X, W, z), dim=-1)


def attend(X, attention) -> torch.Tensor:
    """Attended vectors ``sum_t s_it x_it``.

    Parameters
    ----------
    X : (..., n, T, d)
        Tokens.
    attention : (..., n, T)
        Weights of the tokens, usually a map of :func:`softmax_attention`.

    Returns
    -------
    torch.Tensor, (..., n, d)

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    X, attention = common(X=X, attention=attention)
    if X.ndim < 2 or attention.ndim < 1 or attention.shape[-1] != X.shape[-2]:
        raise ValueError("attention must have shape (..., T) for X of shape (..., T, d), "
                         f"got {short(attention)} for {short(X)}")
    broadcast_batch(X=X.shape[:-2], attention=attention.shape[:-1])
    return (attention.unsqueeze(-2) @ X).squeeze(-2)


class SelectionAttention(nn.Module):
    """One attention layer with a fixed head: ``f(X_i) = v^T X_i^T softmax(X_i W z_i)``.

    The usual way to write the model, differentiated by autograd: for reading, for small experiments, and
    as the independent check of the closed-form gradients in :mod:`attncore.training`.

    Parameters
    ----------
    v : (..., d)
        Fixed head, stored as a buffer.
    parametrization : {"W", "KQ"}
        Train ``W`` itself, or ``K`` and ``Q`` with ``W = K Q^T``.
    init : tensor or pair of tensors, optional
        ``W0 (..., d, d)``, or ``(K0, Q0)`` of shape (..., d, m) each. By default `W` is zero, and `K`, `Q`
        must be given (zero is a stationary point there).

    Raises
    ------
    TypeError, ValueError
        For another `parametrization`, or starting weights of another shape.
    """

    def __init__(self, v, parametrization: str = "W", init=None):
        super().__init__()
        (v,) = common(v=v)
        d = positive_int(v.shape[-1] if v.ndim else 0, "the length of v")
        self.register_buffer("v", v)
        self.parametrization = one_of(parametrization, "parametrization", ("W", "KQ"))
        if parametrization == "W":
            W = torch.zeros(*v.shape[:-1], d, d, dtype=v.dtype, device=v.device) if init is None else init
            W, _ = common(init=W, v=v)
            if W.ndim < 2 or W.shape[-2:] != (d, d):
                raise ValueError(f"init must have shape (..., {d}, {d}) to match v, got {short(W)}")
            self._W = nn.Parameter(W.clone())
        else:
            if not isinstance(init, (tuple, list)) or len(init) != 2:
                raise ValueError(f"init must be a pair (K0, Q0) for parametrization 'KQ', got {short(init)}")
            K, Q, _ = common(K0=init[0], Q0=init[1], v=v)
            if K.ndim < 2 or K.shape != Q.shape or K.shape[-2] != d:
                raise ValueError(f"init must hold K0 and Q0 of one shape (..., {d}, m), got {short(K)} and {short(Q)}")
            self.K, self.Q = nn.Parameter(K.clone()), nn.Parameter(Q.clone())

    @property
    def W(self) -> torch.Tensor:
        """The key-query matrix (..., d, d), whichever way it is parametrised."""
        return self._W if self.parametrization == "W" else self.K @ self.Q.mT

    def attention(self, X, z) -> torch.Tensor:
        """Attention maps (..., n, T) for tokens `X` (..., n, T, d) and queries `z` (..., n, d)."""
        return softmax_attention(X, self.W, z)

    def forward(self, X, z) -> torch.Tensor:
        """Outputs ``v^T X_i^T s_i``, shape (..., n)."""
        attended = attend(X, self.attention(X, z))
        return (attended @ self.v.unsqueeze(-1)).squeeze(-1)
