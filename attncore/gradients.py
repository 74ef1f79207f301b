r"""The loss gradient with respect to attention logits, in a form that survives saturation.

For a sequence with attention ``s = softmax(L)`` and token slopes ``p_t = x_t^T grad h(a)``::

    d ell(y h(a)) / d L_t  =  ell'(u) y s_t (p_t - f),   f = sum_u s_u p_u,   u = y h(a).

As attention saturates, ``p_t - f`` of the chosen token becomes a difference of nearly equal numbers, and
the computed gradient becomes rounding noise. With ``t*`` the token of the largest logit and
``D_t = p_t - p_{t*}``, the same gradient is::

    ell'(u) y s_t (D_t - e),   e = sum_u s_u D_u = f - p_{t*},

where ``D_{t*} = 0`` exactly and `e` is a sum of small terms: this is ``s_t sum_u s_u (p_t - p_u)``
without the T^2 differences. The factor ``exp(m_i)``, ``m_i = max L_t - L_{t*}`` over the tokens with
``D_t != 0``, is taken out of each sequence, and the largest ``|ell'| exp(m_i)`` out of the problem, so that
nothing underflows: the gradient is a mantissa and the logarithm of its scale.

Token values here have shape (T, n, B), as in ``attncore.arrays``; the public face is
:func:`logit_gradient`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from attncore.arrays import choose_arrays
from attncore.data import TokenSelection, check_problem
from attncore.heads import Head, resolve_head
from attncore.losses import Loss, resolve_loss
from attncore.validation import common, one_of, short

__all__ = ["LogitGradient", "logit_gradient"]

FORMS = ("exact", "naive")


@dataclass(frozen=True)
class LogitGradient:
    """Gradient of the mean loss with respect to the logits: ``exp(log_scale) * mantissa``.

    Attributes
    ----------
    mantissa : (..., n, T)
    log_scale : (...)
        One a problem; 0 with ``gradient="naive"``.
    """

    mantissa: torch.Tensor
    log_scale: torch.Tensor


class Objective:
    """Mean loss of a batch of problems as a function of the logits ``L (T, n, B)``.

    Parameters
    ----------
    arrays : TorchArrays or NumpyArrays
        Holds the tokens.
    y : (B, n) tensor
    v : (B, d) tensor
    batch : tuple of int
        Leading axes of the problems, as `head` sees them; their product is B.
    head, loss, gradient
        As in :func:`attncore.training.train`, resolved.
    """

    def __init__(self, arrays, y, v, batch, head: Head, loss: Loss, gradient: str):
        self.arrays, self.head, self.loss, self.batch = arrays, head, loss, batch
        self.n, self.d = y.shape[-1], v.shape[-1]
        self.v = v.reshape(*batch, 1, self.d)
        self.y = arrays.array(y.mT)
        self.signed_mean = -self.y / self.n
        self.columns = arrays.columns(*self.y.shape)
        self.top = self.slopes = None
        if head.linear:
            self.slopes = self._slopes(head.gradient(v.new_zeros(*batch, self.n, self.d), self.v))
        self.form = gradient
        # Above this gap between logits neither exp(gap) nor the squared norm of a gradient underflows.
        self.safe_gap = 0.4 * math.log(torch.finfo(y.dtype).tiny)

    def _slopes(self, gradient):
        """Token slopes ``x_it^T grad h`` from the head's gradient."""
        gradient = gradient.expand(*self.batch, self.n, self.d).reshape(-1, self.n, self.d)
        return self.arrays.scores(self.arrays.borrow(gradient.mT))

    def attended(self, s):
        """Margins ``u`` (n, B) and token slopes ``p`` (T, n, B) at attention `s` (T, n, B)."""
        a = self.arrays.tensor(self.arrays.pull(s)).mT.reshape(*self.batch, self.n, self.d)
        value = self.head.value(a, self.v).reshape(-1, self.n).mT
        u = self.y * self.arrays.borrow(value)
        return u, self._slopes(self.head.gradient(a, self.v)) if self.slopes is None else self.slopes

    def attention(self, L):
        """Softmax over tokens, as a tensor (T, n, B)."""
        return torch.softmax(self.arrays.tensor(L), 0)

    def value(self, L) -> torch.Tensor:
        """Mean loss (B,), as a tensor."""
        u, _ = self.attended(self.arrays.borrow(self.attention(L)))
        return self.loss.value(self.arrays.tensor(u)).mean(0)

    def _log_slope(self, u):
        if self.loss.takes_numpy:
            return self.loss.log_slope(u)
        return self.arrays.borrow(self.loss.log_slope(self.arrays.tensor(u)))

    def _gap(self, L):
        """Logits relative to the largest of each sequence, whose position is kept in ``self.top``.

        On the host the position of the step before is tried first. A device is not asked: it would wait.
        """
        if self.top is not None and self.arrays.on_host:
            gap = L - L.take(self.top)
            if gap.max() <= 0:
                return gap
        self.top = L.argmax(0) * (L.shape[1] * L.shape[2]) + self.columns
        if self.slopes is not None:
            self._refer(self.slopes)
        return L - L.take(self.top)

    def _refer(self, p):
        """Slopes relative to that of the token on top."""
        self.top_slope = p.take(self.top)
        self.relative = p - self.top_slope

    def gradient(self, L):
        """Mantissa (T, n, B), log_scale (B,) and normaliser ``Z = sum_t exp(L_t - max L)`` (n, B)."""
        return self.exact(L) if self.form == "exact" else self.naive(L)

    def exact(self, L):
        """The form that survives saturation."""
        xp = self.arrays.xp
        gap = self._gap(L)
        r = xp.exp(gap)
        Z = r.sum(0)
        u = None
        if self.slopes is None:
            u, p = self.attended(r / Z)
            self._refer(p)
        # Rescaling costs a fifth of a step, so the host looks first whether any gap needs it.
        plain = self.arrays.on_host and gap.min() > self.safe_gap
        m = None if plain else self.arrays.largest(xp.where(self.relative == 0, -math.inf, gap))
        rescaled = self.relative * (r if plain else _rescaled(xp, gap, m))
        e = rescaled.sum(0) / Z
        if u is None:
            u = self.y * (self.top_slope + (e if plain else xp.exp(m) * e))
        log_weight = self._log_slope(u)
        if not plain:
            log_weight = log_weight + m
        log_scale = self.arrays.largest(log_weight)
        if not plain:
            log_scale = xp.where(xp.isinf(log_scale), 0.0, log_scale)
        factor = xp.exp(log_weight - log_scale) * self.signed_mean / Z
        r *= e
        rescaled -= r
        rescaled *= factor
        return rescaled, log_scale, Z

    def naive(self, L):
        """The usual form ``ell'(u) y s (p - f)``, which turns to noise as attention saturates."""
        xp = self.arrays.xp
        r = xp.exp(L - self.arrays.largest(L))
        Z = r.sum(0)
        s = r / Z
        u, p = self.attended(s)
        f = (s * p).sum(0)
        factor = xp.exp(self._log_slope(u)) * self.signed_mean
        return factor * s * (p - f), xp.zeros_like(Z[0]), Z


def _rescaled(xp, gap, m):
    """``exp(gap - m)``, at most 1: what would exceed it has relative slope 0 and does not count.

    A sequence in which no token contributes has ``m = -inf``, and its gradient is zero.
    """
    return xp.exp((gap - xp.where(xp.isinf(m), 0.0, m)).clip(max=0))


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

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value and what was expected.
    """
    check_problem(prob)
    logits, X = common(logits=logits, X=prob.X)
    if logits.shape != X.shape[:-1]:
        raise ValueError(f"logits must have shape {tuple(X.shape[:-1])} to match X, got {short(logits)}")
    one_of(gradient, "gradient", FORMS)
    X, z, y, v = flattened(prob)
    arrays = choose_arrays(X, z, X.shape[-1])
    with torch.no_grad():
        objective = Objective(arrays, y, v, prob.batch, resolve_head(head), resolve_loss(loss), gradient)
        L = arrays.array(logits.detach().to(X.dtype).reshape(X.shape[:-1]).permute(2, 1, 0))
        mantissa, log_scale = (arrays.tensor(part) for part in objective.gradient(L)[:2])
    return LogitGradient(mantissa.permute(2, 1, 0).reshape(logits.shape), log_scale.reshape(prob.batch))


def flattened(prob: TokenSelection) -> tuple[torch.Tensor, ...]:
    """`X`, `z`, `y`, `v` with one batch axis in front."""
    k = len(prob.batch)
    return tuple(a.detach().reshape(-1, *a.shape[k:]) for a in (prob.X, prob.z, prob.y, prob.v))
