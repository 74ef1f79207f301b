r"""Phase boundaries of in-context training, read off a trajectory by definitions without free parameters.

Balanced and dominant columns, and every column of a general `p`:

- ``T_1 = argmax_t alpha_k`` ends fast growth; ``T_2`` is the first time ``loss_k - floor_k <= eps``.

Under-represented columns:

- ``T_I``: first time ``|beta_{k,1}| <= alpha_k`` (from then on the own logit grows faster than the dominant one
  falls);
- ``T_II``: first time ``E Attn_k >= E Attn_1``;
- ``T_III = argmax_t alpha_k``;
- ``T_IV``: first time ``loss_k - floor_k <= eps``.

A phase ends at its boundary and begins at the previous one.  It is "empty" when it ends no later than it begins
(``T_I = 0``; or ``T_III <= T_II``, where the two changes swap), and "not reached" when the trajectory ends before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from attncore.incontext.result import Column, Trajectory
from attncore.validation import real

__all__ = ["Phases", "detect"]

ROUNDING = 1e-13  # both sides are equal at the start for p_1 = 1 / sqrt(K) and p_1 = 1 / K

MEANING = {
    "T_1": "end of fast growth (alpha_k largest)",
    "T_2": "converged (loss_k within eps of its floor)",
    "T_I": "the dominant logit stops losing faster than the own one grows",
    "T_II": "the own feature gets as much attention as the dominant one",
    "T_III": "end of fast growth (alpha_k largest)",
    "T_IV": "converged (loss_k within eps of its floor)",
}


@dataclass(frozen=True)
class Phases:
    """Boundaries of the phases of every column.

    Attributes
    ----------
    times : dict
        ``times[column][name]``: for one setting the state's step (an int; a float for a flow) or None; for a batch
        a tensor ``(...)`` with -1 where it is not reached.
    status : dict
        ``status[column][name]``: "ok", "empty" or "not reached"; for a batch an array of those strings.
    eps : float
        Excess loss that counts as converged.
    """

    times: dict
    status: dict
    eps: float

    def summary(self) -> str:
        """A table in plain text: one line a boundary, with what it means and whether its phase is empty."""
        lines = [f"phase boundaries (eps = {self.eps:g})"]
        for column, times in self.times.items():
            lines.append(f"  column {column}")
            for name, time in times.items():
                shown = "-" if time is None else str(time.tolist() if isinstance(time, torch.Tensor) else time)
                status = self.status[column][name]
                text = status if isinstance(status, str) else ", ".join(status.ravel())
                lines.append(f"    {name:<6}{shown:>10}  {text:<12} {MEANING[name]}")
        return "\n".join(lines)


def _first(condition: torch.Tensor) -> torch.Tensor:
    """Index of the first True along the first axis, -1 if there is none."""
    first = condition.to(torch.uint8).argmax(0)
    return torch.where(condition.any(0), first, -torch.ones_like(first))


def _peak(values: torch.Tensor) -> torch.Tensor:
    """Index of the maximum along the first axis, -1 where the last value is the largest: not over yet."""
    top = values.argmax(0)
    return torch.where(top == values.shape[0] - 1, -torch.ones_like(top), top)


def _boundaries(column: Column, eps: float) -> dict:
    converged = _first(column.excess <= eps)
    if column.B1 is None:
        return {"T_1": _peak(column.alpha), "T_2": converged}
    return {"T_I": _first(column.beta1.abs() <= column.alpha * (1 + ROUNDING)),
            "T_II": _first(column.attn_k >= column.attn_1 * (1 - ROUNDING)),
            "T_III": _peak(column.alpha), "T_IV": converged}


def _statuses(indices: dict) -> dict:
    found, begin = {}, None
    for name, end in indices.items():
        begin = torch.zeros_like(end) if begin is None else begin
        empty = ((begin >= 0) & (end <= begin)).cpu()
        found[name] = np.where((end < 0).cpu(), "not reached", np.where(empty, "empty", "ok"))
        begin = end
    return found


def detect(traj: Trajectory, eps: float = 1e-2) -> Phases:
    """Find the phase boundaries of a trajectory.

    Parameters
    ----------
    traj : Trajectory
        From `attncore.incontext.simulate` or `flow`.  Boundaries are among its recorded steps, so record every step
        (the default) for exact integers.  At the sampled levels alpha and the losses carry sampling noise.
    eps : float
        Excess loss that counts as converged, positive.

    Returns
    -------
    Phases
        `times`, `status` and a text `summary`.

    Raises
    ------
    TypeError
        If `traj` is not a trajectory.
    ValueError
        If `eps` is not positive.

    Examples
    --------
    >>> from attncore.incontext import simulate
    >>> detect(simulate("exact", K=5, N=20, steps=400)).times
    {'balanced': {'T_1': 17, 'T_2': 227}}
    """
    if not isinstance(traj, Trajectory):
        raise TypeError(f"traj must be a Trajectory of attncore.incontext, got {type(traj).__name__}")
    eps = real(eps, "eps", above=0.0)
    times, status = {}, {}
    for name, column in traj.columns.items():
        indices = _boundaries(column, eps)
        found = _statuses(indices)
        at = {key: torch.where(i < 0, -torch.ones_like(traj.steps[i]), traj.steps[i]) for key, i in indices.items()}
        if traj.eta.ndim == 0:
            times[name] = {key: None if indices[key] < 0 else value.item() for key, value in at.items()}
            status[name] = {key: str(value) for key, value in found.items()}
        else:
            times[name], status[name] = at, found
    return Phases(times, status, eps)
