"""Which columns a setting has, the expectations each needs, and how its state becomes a `Column`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attncore.incontext.arrays import as_torch, backend
from attncore.incontext.classes import LaplaceIntegral, MeanField
from attncore.incontext.exact import BinomialSum, TrinomialSum
from attncore.incontext.floors import column_floors
from attncore.incontext.result import Column
from attncore.incontext.settings import Settings


@dataclass(frozen=True)
class Spec:
    """One kind of column: a model with ``rates(state)``, its first state, and the weight of its loss in ``L``.

    The state is ``A``, ``(...)``, for a `BinomialSum`, else the logits of the classes, ``(..., C)``, of sizes `J`.
    """

    name: str
    model: Any
    state: Any
    eta: Any
    p_k: np.ndarray
    multiplicity: np.ndarray
    J: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """``sum of p_k`` over the features this column stands for."""
        return self.p_k * self.multiplicity


def class_layout(settings: Settings, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Class probabilities and sizes of the column `name`, both ``(..., C)``, the query's own feature first."""
    p_k, size = (v.cpu().numpy() for v in settings.share(name))
    if name == "general":
        K = p_k.shape[-1]
        return p_k[..., query_first(K)], np.ones(p_k.shape + (K,))
    K, one = settings.K.cpu().numpy().astype(float), np.ones(tuple(settings.shape))
    if name == "under":
        p1 = settings.p1.cpu().numpy()
        # with two features there is no third class: probability and size zero switch it off
        return np.stack([p_k, p1, np.where(K > 2, p_k, 0.0)], -1), np.stack([one, one, K - 2], -1)
    return np.stack([p_k, (1 - p_k) / (K - 1)], -1), np.stack([one, K - 1], -1)


def query_first(K: int) -> np.ndarray:
    """``order[k]`` lists the features with `k` first: how the K columns of a general `p` are laid out."""
    return np.array([[k, *(m for m in range(K) if m != k)] for k in range(K)])


def specs(level: str, settings: Settings, *, expectation: str = "auto", tail: float = 1e-16) -> list[Spec]:
    """The columns of `settings` with the expectations of `level` ("exact" or "mean_field")."""
    xp = backend(settings.device)
    eta, K = settings.eta.cpu().numpy(), settings.K.cpu().numpy().astype(float)
    N = None if settings.N is None else settings.N.cpu().numpy()
    found = []
    for name in settings.columns():
        p_k, size = (v.cpu().numpy() for v in settings.share(name))
        p, J = class_layout(settings, name)
        state, lifted = xp.zeros(p.shape), eta[..., None] if name != "general" else eta[..., None, None]
        if level == "mean_field":
            model = MeanField(xp, p_k, p, J)
        elif name in ("balanced", "dominant") and expectation != "integral":
            model, state, lifted = BinomialSum(xp, N, p_k, K - 1, tail), xp.zeros(p_k.shape), eta
        elif name == "under" and expectation == "sum":
            model = TrinomialSum(xp, N, p_k, p[..., 1], K - 2, tail)
        else:
            model = LaplaceIntegral(xp, N[..., None] * np.ones_like(p_k) if name == "general" else N, p_k, p, J)
        found.append(Spec(name, model, state, xp.array(lifted), p_k, size, J))
    return found


def build(spec: Spec, settings: Settings, states, rates, loss, attention) -> dict:
    """The `Column` objects of one spec from its recorded states ``(R, ...)``."""
    device = settings.device
    states, rates, loss = (as_torch(v, device) for v in (states, rates, loss))
    attention = tuple(as_torch(v, device) for v in attention) if isinstance(attention, tuple) \
        else as_torch(attention, device)
    common = {"p_k": as_torch(spec.p_k, device), "multiplicity": as_torch(spec.multiplicity, device),
              "loss_k": loss}
    if spec.name == "general":
        return _general_columns(settings, states, rates, attention, common)
    common |= {"name": spec.name, "floor_k": column_floors(settings, spec.name)}
    if spec.name == "under":
        attn_k, attn_1 = (1 - attention[0], attention[1]) if isinstance(attention, tuple) \
            else (attention[..., 0], attention[..., 1])
        fields = {"A": states[..., 0], "B1": states[..., 1], "Bn": states[..., 2],
                  "alpha": rates[..., 0], "beta1": rates[..., 1], "betan": rates[..., 2]}
        return {"under": Column(**common, **fields, attn_k=attn_k, attn_1=attn_1)}
    J = settings.K.to(torch.float64) - 1
    if isinstance(spec.model, BinomialSum):
        A, alpha, attn_k, attn_n = states, rates, 1 - attention, attention / J
        fields = {"A": A, "B": -A / J, "alpha": alpha, "beta": -alpha / J}
    else:
        attn_k, attn_n = attention[..., 0], attention[..., 1]
        fields = {"A": states[..., 0], "B": states[..., 1], "alpha": rates[..., 0], "beta": rates[..., 1]}
    return {spec.name: Column(**common, **fields, attn_k=attn_k,
                              attn_1=attn_k if spec.name == "dominant" else attn_n)}


def _general_columns(settings: Settings, states, rates, attention, common) -> dict:
    K = settings.p.shape[-1]
    order = query_first(K)
    floors = column_floors(settings, "general")
    commonest = settings.p.argmax(-1, keepdim=True)
    columns = {}
    for k in range(K):
        back = torch.as_tensor(np.argsort(order[k]), device=settings.device)
        q, g, attn = (v[..., k, :][..., back] for v in (states, rates, attention))
        index = commonest.expand(attn.shape[:-1] + (1,))
        columns[k] = Column(
            name=k, p_k=common["p_k"][..., k], multiplicity=common["multiplicity"][..., k],
            A=q[..., k], alpha=g[..., k], q=q, g=g, attn_k=attn[..., k],
            attn_1=attn.gather(-1, index)[..., 0], loss_k=common["loss_k"][..., k], floor_k=floors[..., k])
    return columns
