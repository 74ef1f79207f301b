r"""Exact expectations at finite N by exchangeability: finite sums over the counts that matter.

If the features other than those singled out are equally likely and equally weighted, only their number ``n`` of
tokens matters, and the expected sum of squares of ``n`` tokens spread over ``J`` equal features is

.. math:: M_J(n) = n (1 - 1/J) + n^2 / J .

That leaves one sum over ``c ~ Bin(N, p_k)`` for the balanced and the dominant column, and one over
``(c_k, c_1, n)``, trinomial, for an under-represented one.  Counts whose probability is negligible are left
out; the mass left out is known and reported (`dropped`).  Every summand lies in [-1, 1], so it bounds the error.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

# nodes handled at a time: the temporaries of a block stay in the cache
BLOCK = 8192


def square_sum(n, J):
    """``M_J(n)``, the expected sum of squared counts of `n` tokens over `J` equally likely features."""
    return n * (1 - 1 / J) + n * n / J


def _bulk(N: int, p: float, tail: float) -> tuple[np.ndarray, float]:
    """Counts of Bin(N, p) outside of which each side holds at most mass `tail`, and the mass outside."""
    pmf = stats.binom.pmf(np.arange(N + 1), N, p)
    below, above = np.cumsum(pmf), np.cumsum(pmf[::-1])
    low = int(np.searchsorted(below, tail, side="right")) if tail else 0
    high = N - int(np.searchsorted(above, tail, side="right")) if tail else N
    outside = (float(below[low - 1]) if low else 0.0) + (float(above[N - high - 1]) if high < N else 0.0)
    return np.arange(low, high + 1), outside


def binomial_nodes(N: int, p_k: float, tail: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Counts `c`, their probabilities, and the mass left out (at most `tail`)."""
    c, dropped = _bulk(N, p_k, tail / 2)
    return c.astype(float), stats.binom.pmf(c, N, p_k), dropped


def trinomial_nodes(N: int, p_k: float, p_1: float, tail: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Counts ``(c_k, c_1)``, their probabilities, and the mass left out (at most `tail`).

    A box that holds all but ``tail / 2`` is built first, then its least likely cells are dropped until they
    add up to the other half.
    """
    (a, beyond_a), (b, beyond_b) = _bulk(N, p_k, tail / 8), _bulk(N, p_1, tail / 8)
    c_k, c_1 = (g.ravel() for g in np.meshgrid(a, b, indexing="ij"))
    keep = c_k + c_1 <= N
    c_k, c_1 = c_k[keep], c_1[keep]
    weight = stats.binom.pmf(c_k, N, p_k) * stats.binom.pmf(c_1, N - c_k, min(p_1 / (1 - p_k), 1.0))
    order = np.argsort(weight)
    small = np.cumsum(weight[order])
    cut = int(np.searchsorted(small, tail / 2, side="right"))
    kept = np.sort(order[cut:])
    inside = float(small[cut - 1]) if cut else 0.0
    return c_k[kept].astype(float), c_1[kept].astype(float), weight[kept], beyond_a + beyond_b + inside


def _pad(arrays: list[np.ndarray], fill: float) -> np.ndarray:
    width = max(len(a) for a in arrays)
    return np.stack([np.pad(a, (0, width - len(a)), constant_values=fill) for a in arrays])


class BinomialSum:
    """Moments of a two-class column: `k` against `J` equal others, as a function of ``A`` alone.

    Conservation makes ``B = -A / J``, so the state is ``A`` of shape ``(...)``.
    """

    def __init__(self, xp, N, p_k, J, tail: float):
        shape = np.shape(p_k)
        flat = [np.ravel(v) for v in (N, p_k, J)]
        nodes = [binomial_nodes(int(n), float(p), tail) for n, p, _ in zip(*flat, strict=True)]
        c, weight = _pad([x[0] for x in nodes], 1.0), _pad([x[1] for x in nodes], 0.0)
        n = np.maximum(flat[0][:, None] - c, 0.0)
        # M_J(n) + n^2 over n^2, the factor that turns (1 - a)^2 into (1 - a)^2 + S
        spread = 1 + np.divide(square_sum(n, flat[2][:, None]), n * n, out=np.zeros_like(n), where=n > 0)
        full = shape + c.shape[-1:]
        self.c, self.n = xp.array(c.reshape(full)), xp.array(n.reshape(full))
        self.weight, self.spread = xp.array(weight.reshape(full)), xp.array((weight * spread).reshape(full))
        self.dropped = np.reshape([x[2] for x in nodes], shape)
        self.p_k, self.ratio, self.xp = xp.array(p_k), xp.array(-(1 + 1 / J)), xp

    def rates(self, A):
        """``alpha`` (the rate of ``A``), ``loss_k`` and ``(1 - E Attn_k)`` at `A`."""
        # e^-690 is still a normal number: a prompt without v_k keeps (1 - a) = 1
        others = self.n * self.xp.exp(self.xp.maximum(self.ratio * A, -690.0))[..., None]
        rest = others / (self.c + others)
        square = rest * rest
        alpha = self.p_k * self.xp.dot(self.spread, square * (1 - rest))
        return alpha, 0.5 * self.xp.dot(self.spread, square), self.xp.dot(self.weight, rest)


class TrinomialSum:
    """Moments of an under-represented column, by the full or truncated sum over ``(c_k, c_1)``.

    State ``q`` of shape ``(..., 3)``: the logits of ``k``, of the dominant feature, of each other one.
    """

    def __init__(self, xp, N, p_k, p_1, J, tail: float):
        shape = np.shape(p_k)
        flat = [np.ravel(v) for v in (N, p_k, p_1)]
        nodes = [trinomial_nodes(int(n), float(p), float(r), tail) for n, p, r in zip(*flat, strict=True)]
        c_k, c_1 = (_pad([x[i] for x in nodes], fill) for i, fill in ((0, 1.0), (1, 0.0)))
        n = np.maximum(flat[0][:, None] - c_k - c_1, 0.0)
        full = shape + c_k.shape[-1:]
        squares = square_sum(n, np.maximum(np.ravel(J), 1)[:, None])
        arrays = [v.reshape(full) for v in (c_k, c_1, n, squares, _pad([x[2] for x in nodes], 0.0))]
        self.blocks = [[xp.array(np.ascontiguousarray(v[..., i:i + BLOCK])) for v in arrays]
                       for i in range(0, full[-1], BLOCK)]
        self.dropped = np.reshape([x[3] for x in nodes], shape)
        self.p_k, self.J, self.xp = xp.array(p_k), xp.array(np.maximum(J, 1)), xp
        self.has_others = xp.array((np.asarray(J) > 0).astype(float))

    def rates(self, q):
        """``g (..., 3)`` with conserved sum, ``loss_k``, and ``(1 - E Attn_k, E Attn_1)``."""
        # beyond e^300 attention is saturated, and the ratio below must not overflow
        ratio = self.xp.exp(self.xp.clip(q[..., :2] - q[..., 2:], -300.0, 300.0))
        parts = [self._moments(ratio[..., :1], ratio[..., 1:], *block) for block in self.blocks]
        up, down, twice_loss, rest, attn_1 = (sum(part) for part in zip(*parts, strict=True))
        alpha, beta_1 = self.p_k * up, self.p_k * down
        beta_n = -(alpha + beta_1) / self.J * self.has_others
        return self.xp.stack([alpha, beta_1, beta_n], -1), 0.5 * twice_loss, (rest, attn_1)

    def _moments(self, w_k, w_1, c_k, c_1, n, squares, weight):
        dot = self.xp.dot
        dominant = c_1 * w_1
        others = dominant + n
        inverse = 1 / (c_k * w_k + others)
        rest, a_1 = others * inverse, dominant * inverse
        S = a_1 * a_1 + squares * inverse * inverse
        f = rest * rest + S
        fall = S - a_1 - rest + rest * rest
        return (dot(weight, f - rest * f), dot(weight, a_1 * fall), dot(weight, f), dot(weight, rest),
                dot(weight, a_1))
