"""The settings of an in-context experiment, checked: K features, N prompt tokens, their probabilities, the step.

A setting is ``(K, N, p, eta)``.  Settings broadcast against each other, and every result carries their common
shape ``(...)``.  Three layouts of ``p`` are known: ``"balanced"`` (all equal), ``"dominant"`` (feature 1 has
``p1``, the others share the rest equally) and ``"general"`` (any vector).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attncore.validation import as_tensor, positive_int, real, short

LEVELS = ("token", "count", "exact", "mean_field", "closed")


@dataclass(frozen=True)
class Settings:
    """Checked settings: `K` int64, `N`, `p1`, `eta` float64, all of shape `shape`; `p` of shape `shape + (K,)`.

    `N` is None in the mean field, `p1` is None unless the layout is "dominant", `p` None unless it is "general".
    """

    layout: str
    K: torch.Tensor
    N: torch.Tensor | None
    p1: torch.Tensor | None
    p: torch.Tensor | None
    eta: torch.Tensor

    @property
    def shape(self) -> torch.Size:
        return self.eta.shape

    @property
    def device(self) -> torch.device:
        return self.eta.device

    def columns(self) -> list[str]:
        """Kinds of columns a setting has: features that are alike share one."""
        return {"balanced": ["balanced"], "dominant": ["dominant", "under"], "general": ["general"]}[self.layout]

    def share(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Probability ``p_k`` of one feature of the kind `name`, and how many there are; ``(..., K)`` for "general"."""
        if name == "general":
            return self.p, torch.ones_like(self.p)
        K, one = self.K.to(torch.float64), torch.ones_like(self.eta)
        if name == "balanced":
            return 1 / K, K
        return (self.p1, one) if name == "dominant" else ((1 - self.p1) / (K - 1), K - 1)

    def probabilities(self) -> torch.Tensor:
        """All feature probabilities, shape ``(..., max K)``, with zeros where a setting has fewer features."""
        if self.layout == "general":
            return self.p
        feature = torch.arange(int(self.K.max()), device=self.device)
        K = self.K[..., None].to(torch.float64)
        if self.layout == "balanced":
            p = torch.ones_like(feature) / K
        else:
            p1 = self.p1[..., None]
            p = torch.where(feature == 0, p1, (1 - p1) / (K - 1))
        return torch.where(feature < K, p, torch.zeros_like(p))


def _whole(value, name: str, minimum: int, device) -> torch.Tensor:
    if isinstance(value, float) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer or integers, got {short(value)}")
    tensor = as_tensor(value, name, dtype=torch.float64, device=device)
    wrong = (tensor != tensor.round()) | (tensor < minimum)
    if bool(wrong.any()):
        raise ValueError(f"{name} must be whole and at least {minimum}, got {tensor[wrong].flatten()[0].item():g}")
    return tensor


def _between(tensor: torch.Tensor, name: str, low: float, high: float) -> torch.Tensor:
    wrong = ~((tensor > low) & (tensor < high))
    if bool(wrong.any()):
        raise ValueError(f"{name} must lie strictly between {low:g} and {high:g}, "
                         f"got {tensor[wrong].flatten()[0].item():g}")
    return tensor


def distribution(p, name: str = "p", *, device=None) -> torch.Tensor:
    """Return `p` as a float64 tensor whose last axis is a probability distribution over at least two features."""
    p = as_tensor(p, name, dtype=torch.float64, device=device)
    if p.ndim == 0 or p.shape[-1] < 2:
        raise ValueError(f"{name} must be a distribution over at least 2 features, got shape {tuple(p.shape)}")
    if bool((p < 0).any()):
        raise ValueError(f"{name} must be a distribution, got the negative entry {p.min().item():g}")
    total = p.sum(-1)
    off = (total - 1).abs()
    if bool((off > 1e-9).any()):
        worst = total.flatten()[int(off.flatten().argmax())].item()
        raise ValueError(f"{name} must be a distribution (sum 1 within 1e-9), got a sum of {worst:.12g}")
    return p / total[..., None]


def column_arguments(q, p, k, N) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Check the logits ``q (..., K)`` of column `k`, the distribution ``p (K,)`` and `N`; return ``q, p, N``."""
    p = distribution(p)
    q = as_tensor(q, "q", dtype=torch.float64, device=p.device)
    if p.ndim != 1 or q.ndim == 0 or q.shape[-1] != p.shape[0]:
        raise ValueError(f"q must have shape (..., K) and p (K,), got {tuple(q.shape)} and {tuple(p.shape)}")
    K, N = p.shape[0], positive_int(N, "N")
    if positive_int(k, "k", minimum=0) >= K:
        raise ValueError(f"k must lie in 0..{K - 1}, got {k}")
    return q, p, N


def _device(*values, device=None):
    if device is not None:
        return torch.device(device)
    return next((v.device for v in values if isinstance(v, torch.Tensor)), torch.device("cpu"))


def resolve(level: str, *, K=None, N=None, p=None, p1=None, eta=1.0, device=None) -> Settings:
    """Check and broadcast the settings of one call; `level` decides whether `N` is needed.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If `level` is unknown, `p` is not a distribution, ``p1`` is outside (0, 1), both are given, ``K < 2``,
        ``N < 1`` or ``eta <= 0``, or the shapes do not broadcast.
    """
    if p is not None and p1 is not None:
        raise ValueError("p and p1 exclude each other: p1 means p = (p1, rest shared equally), got both")
    device = _device(K, N, p, p1, eta, device=device)
    parts = {"eta": as_tensor(eta, "eta", dtype=torch.float64, device=device)}
    _between(parts["eta"], "eta", 0.0, float("inf"))
    if p is not None:
        p = distribution(p, device=device)
        if bool((p <= 0).any()):
            raise ValueError("p must give every feature a positive probability, got a zero (leave that feature out)")
        if K is not None and bool((_whole(K, "K", 2, device) != p.shape[-1]).any()):
            raise ValueError(f"K must be the length of p, {p.shape[-1]}, got {short(K)}")
        parts["K"] = torch.full(p.shape[:-1], float(p.shape[-1]), dtype=torch.float64, device=device)
    elif K is None:
        raise ValueError("K, the number of features, is needed unless p is given, got None")
    else:
        parts["K"] = _whole(K, "K", 2, device)
    if N is not None:
        parts["N"] = _whole(N, "N", 1, device)
    elif level not in ("mean_field", "closed"):
        raise ValueError(f"N, the prompt length, is needed at level {level!r}, got None")
    if p1 is not None:
        parts["p1"] = _between(as_tensor(p1, "p1", dtype=torch.float64, device=device), "p1", 0.0, 1.0)
    try:
        wide = dict(zip(parts, torch.broadcast_tensors(*parts.values()), strict=True))
    except RuntimeError:
        shapes = {name: tuple(value.shape) for name, value in parts.items()}
        raise ValueError(f"settings must broadcast against each other, got shapes {shapes}") from None
    layout = "general" if p is not None else "balanced" if p1 is None else "dominant"
    return Settings(
        layout=layout, K=wide["K"].to(torch.int64), N=wide.get("N"), p1=wide.get("p1"),
        p=None if p is None else p.expand(wide["eta"].shape + p.shape[-1:]), eta=wide["eta"],
    )


def recorded_steps(steps: int, record) -> list[int]:
    """Steps to keep: every `record`-th, or those listed; 0 and the last always."""
    steps = positive_int(steps, "steps", minimum=0)
    if isinstance(record, (list, tuple)) or hasattr(record, "__array__"):
        wanted = [positive_int(int(r) if float(r) == int(r) else r, "record", minimum=0) for r in record]
        late = [r for r in wanted if r > steps]
        if late:
            raise ValueError(f"record must hold steps up to steps={steps}, got {late[0]}")
        return sorted({0, steps, *wanted})
    return sorted({*range(0, steps + 1, positive_int(record, "record")), steps})


def orthonormal_features(features, K: int, d) -> torch.Tensor:
    """Features as a ``(K, d)`` tensor with orthonormal rows; the standard basis when `features` is None.

    Raises
    ------
    ValueError
        If ``K > d``, the shape is wrong, or the rows are not orthonormal; the message says by how much.
    """
    if d is not None and positive_int(d, "d") < K:
        raise ValueError(f"d must be at least K: K={K} orthonormal features do not fit into d={d} dimensions")
    if features is None:
        return torch.eye(K, K if d is None else d, dtype=torch.float64)
    V = as_tensor(features, "features", dtype=torch.float64)
    if V.ndim != 2 or V.shape[0] != K or (d is not None and V.shape[1] != d):
        raise ValueError(f"features must have shape (K, d) = ({K}, {'d' if d is None else d}), got {tuple(V.shape)}")
    if V.shape[1] < K:
        raise ValueError(f"features must have at least K={K} columns to be orthonormal, got d={V.shape[1]}")
    off = float((V @ V.T - torch.eye(K, dtype=V.dtype, device=V.device)).abs().max())
    if off > 1e-9:
        raise ValueError(f"features must be orthonormal within 1e-9: max |V V^T - I| is {off:.3g}")
    return V


def unit_interval(value, name: str) -> float:
    """A real number in [0, 1)."""
    number = real(value, name, at_least=0.0)
    if number >= 1:
        raise ValueError(f"{name} must be below 1, got {value}")
    return number
