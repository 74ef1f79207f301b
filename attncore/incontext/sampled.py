"""Stochastic descent at the two sampled levels, with fresh prompts at every step."""

from __future__ import annotations

import numpy as np
import torch

from attncore.incontext.columns import query_first
from attncore.incontext.counts import count_step
from attncore.incontext.draws import draw_counts, draw_features
from attncore.incontext.floors import column_floors, initial_loss
from attncore.incontext.result import Column
from attncore.incontext.settings import Settings, orthonormal_features
from attncore.incontext.token import sample_prompts, token_step


def _means(values: torch.Tensor, query: torch.Tensor, K: int) -> torch.Tensor:
    """Mean of `values` ``(B, ...)`` over the prompts of each query, ``(K, ...)``; nan where there is none."""
    sums = torch.zeros((K,) + values.shape[1:], dtype=values.dtype, device=values.device)
    number = torch.bincount(query, minlength=K).to(values)
    return sums.index_add_(0, query, values) / number.reshape((K,) + (1,) * (values.ndim - 1))


class TokenSampler:
    """Token level: state ``Q (d, d)``."""

    def __init__(self, p: np.ndarray, N: int, V: torch.Tensor, size: int, generator: np.random.Generator):
        self.p, self.N, self.V, self.size, self.generator = p, N, V, size, generator
        self.start = torch.zeros(V.shape[1], V.shape[1], dtype=torch.float64, device=V.device)

    def step(self, Q):
        prompts = sample_prompts(self.generator, self.p, self.N, self.V.shape[1], self.size, self.V.device)
        losses, direction, attention = token_step(Q, self.V, prompts)
        return losses, direction, (attention, prompts)

    def describe(self, Q, direction, extra):
        attention, prompts = extra
        a = torch.zeros(self.size, len(self.p), dtype=torch.float64, device=Q.device)
        a.scatter_add_(1, prompts.tokens, attention)
        return self.V @ Q @ self.V.T, self.V @ direction @ self.V.T, a, prompts.query


class CountSampler:
    """Count level: state ``V^T Q V (K, K)``."""

    def __init__(self, p: np.ndarray, N: int, device, size: int, generator: np.random.Generator):
        self.p, self.N, self.size, self.generator, self.device = p, N, size, generator, device
        self.start = torch.zeros(len(p), len(p), dtype=torch.float64, device=device)

    def step(self, q):
        counts = torch.from_numpy(draw_counts(self.generator, self.p, self.N, self.size)).to(self.device)
        query = torch.from_numpy(draw_features(self.generator, self.p, self.size).astype(np.int64)).to(self.device)
        losses, direction, a = count_step(q, counts, query)
        return losses, direction, (a, query)

    def describe(self, q, direction, extra):
        return q, direction, *extra


def run_sampled(sampler, eta: float, steps: int, recorded: list[int]):
    """One setting: recorded ``q, g, attention (R, K, K)``, ``loss_k (R, K)``, mean loss and its error ``(R,)``."""
    keep, state, rows = set(recorded), sampler.start, []
    for step in range(steps + 1):
        losses, direction, extra = sampler.step(state)
        if step in keep:
            q, g, a, query = sampler.describe(state, direction, extra)
            K = q.shape[0]
            rows.append((q, g, _means(a, query, K).T, _means(losses, query, K), losses.mean(),
                         losses.std() / len(losses) ** 0.5))
        state = state + eta * direction
    return [torch.stack(items) for items in zip(*rows, strict=True)]


def simulate_sampled(level, settings: Settings, steps, recorded, prompts, seed, features, d):
    """All settings one after the other; setting b draws from ``(seed, b)`` alone."""
    p = settings.probabilities()
    rows = []
    for b, index in enumerate(np.ndindex(*settings.shape)):
        K, N = int(settings.K[index]), int(settings.N[index])
        probabilities = p[index][:K].cpu().numpy()
        generator = np.random.default_rng([seed, b])
        if level == "token":
            V = orthonormal_features(features, K, d).to(settings.device)
            sampler = TokenSampler(probabilities, N, V, prompts, generator)
        else:
            sampler = CountSampler(probabilities, N, settings.device, prompts, generator)
        q, g, a, loss_k, loss, error = run_sampled(sampler, float(settings.eta[index]), steps, recorded)
        start = float(initial_loss(probabilities, N))
        rows.append((_by_layout(settings.layout, q, g, a, loss_k, settings.p, index), loss,
                     _rise(recorded, loss, error, start)))
    columns = _assemble(settings, [row[0] for row in rows])
    loss = torch.stack([row[1] for row in rows], -1).reshape((len(recorded),) + settings.shape)
    rises = torch.tensor([row[2] for row in rows], device=settings.device).reshape(settings.shape)
    return columns, loss, rises


def _rise(recorded, loss, error, start: float) -> int:
    above = (~(loss <= start + 5 * error)).nonzero()
    return recorded[int(above[0])] if len(above) else -1


def _by_layout(layout, q, g, a, loss_k, p, index) -> dict:
    """Average one setting's ``(R, K, K)`` statistics over features that are alike."""
    K = q.shape[-1]
    if layout == "general":
        top = int(p[index].argmax())
        return {k: {"A": q[:, k, k], "alpha": g[:, k, k], "q": q[..., k], "g": g[..., k],
                    "attn_k": a[:, k, k], "attn_1": a[:, top, k], "loss_k": loss_k[:, k]} for k in range(K)}
    if layout == "balanced":
        return {"balanced": _average(q, g, a, loss_k, range(K))}
    return {"dominant": _average(q, g, a, loss_k, [0]) | {"attn_1": a[:, 0, 0]},
            "under": _average(q, g, a, loss_k, range(1, K), dominant=True)}


def _average(q, g, a, loss_k, queries, dominant: bool = False) -> dict:
    K, queries = q.shape[-1], list(queries)
    order = torch.as_tensor(query_first(K)[queries], device=q.device)
    # [..., i, j]: query queries[i], competitor number j (0 is the query itself)
    q, g, a = (v.transpose(-1, -2)[:, queries].gather(-1, order.expand(v.shape[0], -1, -1)) for v in (q, g, a))
    fields = {"A": q[..., 0].mean(-1), "alpha": g[..., 0].mean(-1), "attn_k": a[..., 0].nanmean(-1),
              "loss_k": loss_k[:, queries].nanmean(-1)}
    if not dominant:
        return fields | {"B": q[..., 1:].mean((-1, -2)), "beta": g[..., 1:].mean((-1, -2)),
                         "attn_1": a[..., 1:].nanmean((-1, -2))}
    rest_q, rest_g = (v[..., 2:].mean((-1, -2)) if K > 2 else torch.zeros_like(fields["A"]) for v in (q, g))
    return fields | {"B1": q[..., 1].mean(-1), "beta1": g[..., 1].mean(-1), "Bn": rest_q, "betan": rest_g,
                     "attn_1": a[..., 1].nanmean(-1)}


def _assemble(settings: Settings, rows: list[dict]) -> dict:
    general = settings.layout == "general"
    shares = {name: (*settings.share(name), column_floors(settings, name)) for name in settings.columns()}
    columns = {}
    for name in rows[0]:
        fields = {}
        for field in rows[0][name]:
            values = torch.stack([row[name][field] for row in rows], 1)
            fields[field] = values.reshape(values.shape[:1] + settings.shape + values.shape[2:])
        p_k, size, floor = (v[..., name] for v in shares["general"]) if general else shares[name]
        columns[name] = Column(name=name, p_k=p_k, multiplicity=size, floor_k=floor, **fields)
    return columns
