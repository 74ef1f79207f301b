"""Decreasing losses of the margin ``u = y f``, each with its slope in logarithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import logsigmoid

from attncore.validation import one_of, short

__all__ = ["Loss"]


@dataclass(frozen=True)
class Loss:
    """A strictly decreasing loss ``ell(u)`` of the margin ``u = y f``.

    Attributes
    ----------
    name : str
    value : callable
        ``u -> ell(u)``, elementwise.
    log_slope : callable
        ``u -> log(-ell'(u))``, elementwise. In logarithm, so that a slope too small or too large for a
        float still weighs the sequences correctly.
    takes_numpy : bool
        Whether `log_slope` takes NumPy arrays as well as tensors, which saves the CPU a conversion.
    """

    name: str
    value: Callable[[torch.Tensor], torch.Tensor]
    log_slope: Callable[[torch.Tensor], torch.Tensor]
    takes_numpy: bool = False


def _logistic_log_slope(u):
    """``log(1 / (1 + exp(u)))`` without overflow or cancellation, for either kind of array."""
    xp = np if isinstance(u, np.ndarray) else torch
    return -(u.clip(min=0) + xp.log1p(xp.exp(-abs(u))))


LOSSES = {
    loss.name: loss
    for loss in (
        Loss("logistic", lambda u: -logsigmoid(u), _logistic_log_slope, takes_numpy=True),
        Loss("exponential", lambda u: torch.exp(-u), lambda u: -u, takes_numpy=True),
        Loss("correlation", lambda u: -u, lambda u: 0 * u, takes_numpy=True),
    )
}


def resolve_loss(loss) -> Loss:
    """Return the :class:`Loss` of a name ("logistic", "exponential", "correlation"), or `loss` itself."""
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str):
        raise TypeError(f"loss must be a name or an attncore.losses.Loss, got {short(loss)}")
    return LOSSES[one_of(loss, "loss", LOSSES)]
