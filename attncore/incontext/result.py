"""What a simulation returns: one trajectory, and inside it one record for every kind of column."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Column:
    r"""One column ``Q v_k`` of the trained matrix along a trajectory; all arrays have shape ``(R, ...)``.

    For queries ``x_q = v_k``: ``A = v_k^T Q v_k``; ``B = v_n^T Q v_k`` (all ``n != k`` alike), or ``B1`` for
    ``n = 1`` (the dominant feature) and ``Bn`` for the others, or, for a general `p`, ``q`` with all K logits.
    The gradient step adds ``eta`` times ``alpha`` to ``A`` and ``eta`` times ``beta`` (``beta1``, ``betan``,
    ``g``) to the others; the factor ``p_k`` is inside.  `attn_k` is :math:`E[Attn_k \mid x_q = v_k]`, `attn_1`
    the attention one single competitor gets: feature 1 (for the dominant column that is `attn_k` itself), or any
    one of the others when all are alike, or the most frequent feature for a general `p`.
    `loss_k` is :math:`\tfrac12 E[|a - e_k|^2 \mid x_q = v_k]` and `floor_k` its infimum over `Q`.
    Attributes a column does not have are None.
    """

    name: str | int
    p_k: torch.Tensor
    multiplicity: torch.Tensor
    A: torch.Tensor
    alpha: torch.Tensor
    attn_k: torch.Tensor
    attn_1: torch.Tensor
    loss_k: torch.Tensor
    floor_k: torch.Tensor
    B: torch.Tensor | None = None
    beta: torch.Tensor | None = None
    B1: torch.Tensor | None = None
    Bn: torch.Tensor | None = None
    beta1: torch.Tensor | None = None
    betan: torch.Tensor | None = None
    q: torch.Tensor | None = None
    g: torch.Tensor | None = None

    @property
    def excess(self) -> torch.Tensor:
        """``loss_k - floor_k``, what training can still remove."""
        return self.loss_k - self.floor_k


@dataclass(frozen=True)
class Trajectory:
    """A simulated training run, possibly of many settings at once.

    Attributes
    ----------
    level : str
        The level it was simulated at.
    dynamics : str
        "gd" (gradient descent, `steps` are integers) or "flow" (gradient flow, `steps` are times).
    steps : Tensor (R,)
        Recorded steps; entry r of every array is the state after ``steps[r]`` steps.
    columns : dict
        "balanced"; or "dominant" and "under"; or 0 .. K-1 for a general `p`: a `Column` each.
    loss, floor : Tensor (R, ...) and (...)
        Population loss ``sum_k p_k loss_k`` and its infimum.
    loss_rises : Tensor (...) of int64
        First step after which the loss was higher than before it, or -1: a step size too large for descent.
        At the sampled levels, the first recorded step whose loss exceeds the initial one by five standard errors.
    dropped : Tensor (...)
        Probability mass of the prompts left out of the exact sums (0 where none was): every expectation of a
        quantity in [-1, 1] is off by at most this.
    status : str
        A sentence for the reader.
    K, eta : Tensor (...)
        The settings; `N` is None in the mean field, `p` ``(..., K)`` holds all probabilities.
    """

    level: str
    dynamics: str
    steps: torch.Tensor
    columns: dict
    loss: torch.Tensor
    floor: torch.Tensor
    loss_rises: torch.Tensor
    dropped: torch.Tensor
    status: str
    K: torch.Tensor
    N: torch.Tensor | None
    p: torch.Tensor
    eta: torch.Tensor

    def matrix(self, index: int = -1) -> torch.Tensor:
        """``V^T Q V`` at one recorded index, shape ``(..., K, K)``: entry ``[n, k]`` is ``v_n^T Q v_k``."""
        size = self.p.shape[-1]
        out = torch.zeros(self.p.shape + (size,), dtype=torch.float64, device=self.p.device)
        diagonal = torch.eye(size, dtype=torch.bool, device=self.p.device)
        for name, column in self.columns.items():
            if column.q is not None:
                out[..., :, name] = column.q[index]
                continue
            under = name == "under"
            off, one = (column.Bn, column.B1) if under else (column.B, column.B)
            block = torch.where(diagonal, column.A[index][..., None, None], off[index][..., None, None])
            block[..., 0, 1:] = one[index][..., None]
            chosen = slice(1, None) if under else slice(0, 1) if name == "dominant" else slice(None)
            out[..., :, chosen] = block[..., :, chosen]
        present = self.p > 0
        return out * (present[..., :, None] & present[..., None, :])


def rises_sentence(loss_rises: torch.Tensor) -> str:
    """Say in words whether the step size was too large anywhere."""
    rising = loss_rises >= 0
    if not bool(rising.any()):
        return "ok: the loss never rose"
    where = "" if loss_rises.ndim == 0 else f" in {int(rising.sum())} of {loss_rises.numel()} settings"
    first = int(loss_rises[rising].min())
    return f"the loss rose{where}, first at step {first}: use a smaller eta"
