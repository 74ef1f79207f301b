r"""Expectations for columns described by classes of features: the exact one by an integral, and the mean field.

Class 0 is the query's own feature; class ``i`` stands for ``J_i`` features of probability ``p_i`` each with one
common logit ``q_i``.  Two classes describe a balanced or dominant column, three an under-represented one, and K
classes of one feature any `p` at all.

**The integral** (ours).  Attention is a ratio of counts, ``a_m = c_m w_m / Z`` with ``w = e^q``, and
``1/Z^3 = 1/2 int_0^inf s^2 e^{-sZ} ds`` turns every expectation of a product of three attentions into an
integral of derivatives of the multinomial generating function ``G(s)^N``, ``G(s) = sum_m p_m e^{-s w_m}``.
So an expectation over all counts costs one integral in one variable, whatever N, K and p.

In ``x = log s`` the trapezoidal rule with step ``h`` has relative error at most
``2 (cos a)^-3 / (e^{2 pi a / h} - 1)`` for every ``0 < a < pi/2``, because
``|E[m e^{-s e^{ia} Z}]| <= E[m e^{-s cos(a) Z}]`` for a monomial ``m >= 0``.  Each setting has its own step
``h <= STEP``.  Cutting the range at ``s N max w = 1e-5`` and ``s N min w = 42`` costs ``(1e-5)^3 / 6`` and
``Gamma(3, 42) / 2``.  `RELATIVE_ERROR` adds the three; `rates` only ever combines monomials of degree three.
"""

from __future__ import annotations

import math

import numpy as np

STEP = 0.22
LOW, HIGH = 1e-5, 42.0
# logits further apart than this are treated as this far apart: e^-200 = 1e-87
SPREAD = 200.0


def _relative_error() -> float:
    angle = math.atan(2 * math.pi / (3 * STEP))
    strip = 2 * math.cos(angle) ** -3 / math.expm1(2 * math.pi * angle / STEP)
    return strip + LOW**3 / 6 + math.exp(-HIGH) * (1 + HIGH + HIGH**2 / 2)


RELATIVE_ERROR = _relative_error()


class LaplaceIntegral:
    """Exact moments at finite `N` ``(...)`` for classes of probabilities `p` and sizes `J`, ``(..., C)``."""

    def __init__(self, xp, N, p_k, p, J):
        N, J = np.asarray(N, dtype=float), np.asarray(J, dtype=float)
        self.N = xp.array(N[..., None])
        self.falling = [xp.array(v[..., None]) for v in (N, N * (N - 1), N * (N - 1) * (N - 2))]
        self.p_k, self.p, self.J = xp.array(p_k), xp.array(p)[..., None], np.asarray(J, dtype=float)
        self.mass, self.others, self.xp = self.p * xp.array(J)[..., None], xp.array(J)[..., 1:, None], xp
        self.dropped = np.zeros(np.shape(p_k))

    def _measure(self, q):
        """Nodes' weights ``mu (..., X)`` and the class terms ``x, y, z (..., C, X)``."""
        xp = self.xp
        w = xp.exp(xp.clip(q - xp.amax(q, -1)[..., None], -SPREAD, 0.0))[..., None]
        length = math.log(HIGH / LOW) - xp.log(xp.amin(w, (-2, -1)))
        number = math.ceil(float(length.max()) / STEP)
        step = length[..., None] / number
        s = LOW / self.N * xp.exp(step * xp.array(np.arange(number + 1.0)))
        drop = -s[..., None, :] * w
        decay = xp.exp(drop)
        G = (self.mass * decay).sum(-2)
        # log G without cancellation: near G = 1 through 1 - G, elsewhere directly
        fall = xp.maximum((self.mass * xp.expm1(drop)).sum(-2), -0.75)
        log_G = xp.where(G < 0.5, xp.log(G), xp.log1p(fall))
        x = w * self.p * decay / G[..., None, :]
        y = w * x
        # ds s^2 / 2 = s^3 / 2 dx
        mu = step / 2 * s * s * s * xp.exp(self.N * log_G)
        return mu, x, y, w * y

    def rates(self, q):
        """``g (..., C)`` for one feature of each class, ``loss_k``, and ``E Attn (..., C)``."""
        dot, (M1, M2, M3) = self.xp.dot, self.falling
        mu, x, y, z = self._measure(q)
        x_k, y_k = x[..., 0, :], y[..., 0, :]
        x_n, y_n, z_n = x[..., 1:, :], y[..., 1:, :], z[..., 1:, :]
        Jx, Jy = self.others * x_n, self.others * y_n
        X1, X2, Y1 = Jx.sum(-2), (Jx * x_n).sum(-2), Jy.sum(-2)
        XY, Z1 = (Jy * x_n).sum(-2), (self.others * z_n).sum(-2)
        up = x_k * (M3 * (X1 * X1 + X2) + 2 * M2 * Y1)
        alpha = self.p_k * dot(mu, up)
        twice_loss = dot(mu, up + M3 * X1 * (X1 * X1 + X2) + M2 * (4 * X1 * Y1 + 2 * XY) + 2 * M1 * Z1)
        X, Y = x_k + X1, y_k + Y1
        M2, M3 = M2[..., None, :], M3[..., None, :]
        total, own = X[..., None, :], x_k[..., None, :]
        beta = (x_n * (M3 * (X2 - x_k * X1)[..., None, :] + M2 * Y1[..., None, :])
                - (M3 * x_n * x_n + M2 * y_n) * total - M2 * y_n * own)
        beta = self.p_k[..., None] * dot(mu[..., None, :], beta)
        attention = dot(mu[..., None, :], x * (M3 * total * total + M2 * Y[..., None, :])
                        + 2 * M2 * y * total + M1[..., None, :] * z)
        return self.xp.concat([alpha[..., None], beta], -1), 0.5 * twice_loss, attention


class MeanField:
    """The limit ``N -> infinity``: counts are replaced by their means."""

    def __init__(self, xp, p_k, p, J):
        self.p_k, self.p, self.J, self.xp = xp.array(p_k), xp.array(p), xp.array(J), xp
        self.dropped = np.zeros(np.shape(p_k))

    def rates(self, q):
        """``g (..., C)`` for one feature of each class, ``loss_k``, and ``Attn (..., C)``."""
        weight = self.p * self.xp.exp(q - self.xp.amax(q, -1)[..., None])
        a = weight / (self.J * weight).sum(-1)[..., None]
        a_n, J_n = a[..., 1:], self.J[..., 1:]
        a_k, held = a[..., 0], J_n * a_n
        rest, S = held.sum(-1), (held * a_n).sum(-1)
        f = rest * rest + S
        beta = a_n * ((S - a_k * rest)[..., None] - a_n)
        g = self.xp.concat([(a_k * f)[..., None], beta], -1)
        return self.p_k[..., None] * g, 0.5 * f, a
