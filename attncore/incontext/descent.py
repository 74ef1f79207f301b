"""Gradient descent on the few scalars of an exact or mean-field column."""

from __future__ import annotations

import torch

from attncore.incontext.arrays import as_torch, stack_records
from attncore.incontext.columns import Spec


def descend(spec: Spec, steps: int, recorded: list[int]):
    """Run `steps` steps; return what was recorded and the loss after every step, ``(steps + 1, ...)``."""
    rates, state, eta = spec.model.rates, spec.state, spec.eta
    keep, kept, losses = set(recorded), [], []
    for step in range(steps + 1):
        slope, loss, attention = rates(state)
        losses.append(loss)
        if step in keep:
            kept.append((state, slope, loss, attention))
        state = state + eta * slope
    return stack_records(kept), stack_records(losses)


def first_rise(loss, device: torch.device) -> torch.Tensor:
    """First step after which the loss ``(T + 1, ...)`` was higher than before it, or -1."""
    loss = as_torch(loss, device)
    # rounding moves a settled loss by a few units in its last place
    higher = loss[1:] > loss[:-1] * (1 + 1e-12)
    if higher.shape[0] == 0:
        return torch.full(loss.shape[1:], -1, dtype=torch.int64, device=device)
    first = higher.to(torch.uint8).argmax(0) + 1
    return torch.where(higher.any(0), first, -torch.ones_like(first))
