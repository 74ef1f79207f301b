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
from attncore.incontext.settings import Settings
from attncore.validation import as_tensor


def flow_times(times) -> np.ndarray:
    """Check that `times` is a strictly increasing list of times ``>= 0``."""
    times = as_tensor(times, "times", dtype=torch.float64).cpu().numpy()
    if times.ndim != 1 or times.size == 0 or times[0] < 0 or np.any(np.diff(times) <= 0):
        raise ValueError(f"times must be a strictly increasing list of times >= 0, got {times!r:.80}")
    return times


def integrate(spec: Spec, times: np.ndarray, rtol: float) -> list:
    """States of one column at `times`, by adaptive integration; one more vector of numbers to scipy."""
    model, shape, device = spec.model, spec.state.shape, getattr(spec.state, "device", None)
    on_cpu = isinstance(spec.state, np.ndarray)

    def lift(flat):
        state = flat.reshape(tuple(shape))
        return state if on_cpu else torch.from_numpy(state).to(device)

    def slope(s, flat):
        rate = spec.eta * model.rates(lift(flat))[0]
        return math.exp(s) * np.ravel(rate if on_cpu else rate.cpu().numpy())

    start = np.zeros(int(np.prod(shape, dtype=int)))
    points = np.log1p(times)
    if points[-1] == 0:
        return [lift(start)]
    # states of different settings and columns do not interact: the Jacobian is block diagonal
    band = model.width - 1
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
