r"""Gradient flow ``dQ/dt = -eta grad L``, integrated in logarithmic time.

With ``t = e^s - 1`` the logits move at a bounded rate in ``s`` for ever (they grow like ``1/2 log t``), so an
adaptive method crosses each decade in about the same number of steps.  At a finite N the prompts without ``v_k``
keep pulling the competitors' logits to their optimum at a rate that does not decay in ``t``: that is stiff in
``s``, and scipy's LSODA changes to an implicit formula by itself when it happens.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.integrate import solve_ivp

from attncore.incontext.arrays import as_torch, local
from attncore.incontext.closed_form import odds_at
from attncore.incontext.columns import Spec
from attncore.incontext.exact import BinomialSum
from attncore.incontext.settings import Settings
from attncore.validation import as_tensor


def flow_times(times) -> np.ndarray:
    """Check that `times` is a strictly increasing list of times ``>= 0``."""
    times = as_tensor(times, "times", dtype=torch.float64).cpu().numpy()
    if times.ndim != 1 or times.size == 0 or times[0] < 0 or np.any(np.diff(times) <= 0):
        raise ValueError(f"times must be a strictly increasing list of times >= 0, got {times!r:.80}")
    return times


class _Coordinates:
    """What is integrated: ``A`` and the competitors' logits relative to the last one; conservation gives the rest.

    ``alpha`` is a sum of positive terms and keeps its relative accuracy however small it becomes, while the rates of
    single competitors carry rounding errors that ``e^s`` blows up.  In these coordinates the errors stay among the
    differences, which are strongly attracted to their optimum, and do not reach ``A``.
    """

    def __init__(self, spec: Spec):
        self.scalar = isinstance(spec.model, BinomialSum)
        self.shape = tuple(spec.state.shape) if self.scalar else (*spec.state.shape[:-1], spec.state.shape[-1] - 1)
        self.width = 1 if self.scalar else self.shape[-1]
        self.J = spec.J[..., 1:]

    def state(self, y: np.ndarray) -> np.ndarray:
        y = y.reshape(self.shape)
        if self.scalar:
            return y
        A, apart = y[..., :1], np.concatenate([y[..., 1:], np.zeros_like(y[..., :1])], -1)
        last = -(A + (self.J * apart).sum(-1, keepdims=True)) / self.J.sum(-1, keepdims=True)
        return np.concatenate([A, last + apart], -1)

    def rate(self, g: np.ndarray) -> np.ndarray:
        return g if self.scalar else np.concatenate([g[..., :1], g[..., 1:-1] - g[..., -1:]], -1)


def integrate(spec: Spec, times: np.ndarray, rtol: float) -> list:
    """States of one column at `times`, by adaptive integration."""
    coordinates, on_cpu = _Coordinates(spec), isinstance(spec.state, np.ndarray)

    def lift(y):
        state = coordinates.state(y)
        return state if on_cpu else torch.from_numpy(state).to(spec.state.device)

    def slope(s, y):
        rate = spec.eta * spec.model.rates(lift(y))[0]
        return math.exp(s) * np.ravel(coordinates.rate(rate if on_cpu else rate.cpu().numpy()))

    start = np.zeros(math.prod(coordinates.shape))
    points = np.log1p(times)
    if points[-1] == 0:
        return [lift(start)]
    # states of different settings and columns do not interact: the Jacobian is block diagonal
    band = coordinates.width - 1
    solution = solve_ivp(slope, (0.0, points[-1]), start, method="LSODA", t_eval=points, rtol=rtol, atol=rtol,
                         lband=band, uband=band)
    if not solution.success:
        raise ValueError(f"the flow could not be integrated to t={times[-1]:g}: {solution.message}")
    return [lift(np.ascontiguousarray(column)) for column in solution.y.T]


def closed_states(spec: Spec, settings: Settings, times: np.ndarray) -> list:
    """States ``(A, B)`` of a balanced or dominant mean-field column at `times`, from the closed form."""
    K = settings.K.to(torch.float64)
    p_k = as_torch(spec.p_k, settings.device)
    t = torch.as_tensor(times, device=settings.device).reshape((-1,) + (1,) * K.ndim)
    gap = torch.log(odds_at(K, p_k, settings.eta * t) * (1 - p_k) / p_k)
    A = gap * (K - 1) / K
    return [local(state) for state in torch.stack([A, -A / (K - 1)], -1)]


def evaluate(spec: Spec, states: list):
    """Stack ``(state, rates, loss, attention)`` over recorded states."""
    return [(state, *spec.model.rates(state)) for state in states]
