"""Gradient descent on the attention weights, for whole ensembles at once.

One loop serves ``W`` and ``(K, Q)``, plain and normalised steps, a ridge, any decreasing loss and any head
given by value and gradient. Gradients are closed forms (:mod:`attncore.gradients`); nothing is taped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from attncore.data import TokenSelection, problem_generators
from attncore.gradients import FORMS, attended_margin
from attncore.heads import resolve_head
from attncore.losses import resolve_loss
from attncore.validation import as_tensor, one_of, positive_int, real, short

WEIGHT_STREAM = 1  # so that weights and data drawn from one seed are independent


@dataclass(frozen=True)
class Trajectory:
    """What :func:`train` returns. R is the number of recorded states.

    Attributes
    ----------
    steps : (R,) int64, on the CPU
        Recorded states: state k is the one after k steps, state 0 the start.
    loss : (R, ...)
        Mean loss over the n sequences, without the ridge.
    W : (R, ..., d, d)
        Key-query matrix; ``K Q^T`` when ``K`` and ``Q`` are trained.
    K, Q : (R, ..., d, m) or None
    attention : (..., n, T)
        Attention maps of the last recorded state.
    saturated : (...) int64
        First state in which every sequence of the problem holds all but at most one machine epsilon of its
        attention on one token (``1 - max_t s_it <= eps`` of the dtype), -1 if there was none. From
        about there on the naive gradient ``s (p - f)`` carries no information.
    stopped : int or None
        State at which the callback asked to stop, None if all steps were taken.
    """

    steps: torch.Tensor
    loss: torch.Tensor
    W: torch.Tensor
    K: torch.Tensor | None
    Q: torch.Tensor | None
    attention: torch.Tensor
    saturated: torch.Tensor
    stopped: int | None


@dataclass(frozen=True)
class Progress:
    """What the callback of :func:`train` sees at each recorded state.

    Attributes
    ----------
    step : int
    steps : int
        How many steps were asked for.
    loss : (...)
        Mean loss of each problem in this state.
    weights : tuple of tensors
        ``(W,)`` or ``(K, Q)``: copies of this state.
    """

    step: int
    steps: int
    loss: torch.Tensor
    weights: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class _Rule:
    """How a step follows from a gradient."""

    lr: float
    normalized: bool
    each: bool
    norm_eps: float
    ridge: float


def gaussian_start(batch, d: int, m: int, seed: int = 0, scale: float = 0.1, dtype=None, device=None):
    """Small Gaussian `K0`, `Q0`, shape (..., d, m) each, entries of standard deviation ``scale / sqrt(d)``.

    Problem b of the batch depends on ``(seed, b)`` only, and is independent of the data that
    :func:`attncore.data.token_selection` draws from the same seed.
    """
    batch = tuple(batch)
    count = int(np.prod(batch, dtype=np.int64))
    draws = np.empty((2, count, d, m))
    for b, rng in enumerate(problem_generators(seed, count, WEIGHT_STREAM)):
        draws[:, b] = rng.standard_normal((2, d, m))
    draws = torch.tensor(draws * (scale / d**0.5), dtype=dtype or torch.float64, device=device)
    return draws[0].reshape(*batch, d, m), draws[1].reshape(*batch, d, m)


def _start(prob, parametrization, m, init, seed) -> list[torch.Tensor]:
    """The weights training starts from, checked and copied."""
    batch, d = prob.batch, prob.X.shape[-1]
    like = dict(dtype=prob.X.dtype, device=prob.X.device)
    if m is not None:
        m = positive_int(m, "m")
        if parametrization == "W":
            raise ValueError(f"m belongs to parametrization 'KQ' and must be None for 'W', got {m}")
    if init is None:
        if parametrization == "W":
            return [torch.zeros(*batch, d, d, **like)]
        return list(gaussian_start(batch, d, m or d, seed, **like))
    if parametrization == "W":
        named = {"init": init}
    elif isinstance(init, (tuple, list)) and len(init) == 2:
        named = {"init[0]": init[0], "init[1]": init[1]}
    else:
        raise ValueError(f"init must be a pair (K0, Q0) for parametrization 'KQ', got {short(init)}")
    weights = []
    for name, value in named.items():
        value = as_tensor(value, name, **like)
        last = d if parametrization == "W" else m or (value.shape[-1] if value.ndim else 0)
        if value.ndim < 2 or value.shape[-2:] != (d, last) or value.shape[:-2] not in ((), batch):
            raise ValueError(f"{name} must have shape {(*batch, d, last)} or {(d, last)}, got {short(value)}")
        weights.append(value.expand(*batch, d, last).clone())
    if len(weights) == 2 and weights[0].shape != weights[1].shape:
        shapes = " and ".join(str(tuple(M.shape)) for M in weights)
        raise ValueError(f"init must hold K0 and Q0 of one shape, got {shapes}")
    return weights


def record_schedule(record, steps: int) -> list[int]:
    """States to record: every `record`-th, or the listed ones; 0 and `steps` always."""
    if isinstance(record, (list, tuple, range, np.ndarray, torch.Tensor)):
        listed = record.tolist() if isinstance(record, (np.ndarray, torch.Tensor)) else record
        chosen = [positive_int(k, "record", minimum=0) for k in listed]
        if chosen and max(chosen) > steps:
            raise ValueError(f"record must list states in 0..{steps}, got {max(chosen)}")
    else:
        chosen = range(0, steps + 1, positive_int(record, "record"))
    return sorted({0, steps, *chosen})


def _logits(weights, X, z):
    keyed = z @ weights[0].mT if len(weights) == 1 else (z @ weights[1]) @ weights[0].mT
    return (X @ keyed.unsqueeze(-1)).squeeze(-1)


def _weight_gradients(weights, g, X, z):
    """Gradients with respect to the weights from the gradient `g` with respect to the logits."""
    pulled = (g.unsqueeze(-2) @ X).squeeze(-2)
    if len(weights) == 1:
        return [pulled.mT @ z]
    K, Q = weights
    return [pulled.mT @ (z @ Q), z.mT @ (pulled @ K)]


def _add_ridge(weights, grads, log_scale, ridge):
    """Gradient of ``loss + ridge |weights|^2`` as mantissas with a common logarithm of their scale."""
    log_ridge = float(np.log(2 * ridge))
    common_scale = log_scale.clamp(min=log_ridge)
    a = (log_scale - common_scale).exp()[..., None, None]
    b = (log_ridge - common_scale).exp()[..., None, None]
    return [a * G + b * M for G, M in zip(grads, weights, strict=True)], common_scale


def _take_step(weights, grads, log_scale, rule: _Rule) -> None:
    """Move the weights in place along minus the gradient ``exp(log_scale) * grads``."""
    if rule.ridge:
        grads, log_scale = _add_ridge(weights, grads, log_scale, rule.ridge)
    if not rule.normalized:
        rates = [rule.lr * log_scale.exp()] * len(grads)
    else:
        squares = [G.square().sum((-2, -1)) for G in grads]
        if not rule.each:
            squares = [sum(squares)] * len(grads)
        norms = [square.sqrt() for square in squares]
        if rule.norm_eps:
            slack = rule.norm_eps * (-log_scale).exp()
            norms = [norm + slack for norm in norms]
        rates = [rule.lr / torch.where(norm > 0, norm, 1.0) for norm in norms]
    for M, G, rate in zip(weights, grads, rates, strict=True):
        M.sub_(rate[..., None, None] * G)


def train(prob: TokenSelection, parametrization: str = "W", steps: int = 2000, lr: float = 0.1,
          normalized: bool = True, normalization: str = "joint", norm_eps: float = 0.0, ridge: float = 0.0,
          loss="logistic", head="linear", m: int | None = None, init=None, seed: int = 0, record=100,
          callback: Callable[[Progress], object] | None = None, gradient: str = "exact") -> Trajectory:
    r"""Train the attention weights by full-batch gradient descent with a fixed head.

    Minimises, for every problem of the batch at once,

        L(W) = (1/n) sum_i ell(y_i h(X_i^T softmax(X_i W z_i))) + ridge * (|W|_F^2  or  |K|_F^2 + |Q|_F^2),

    with ``W`` free or ``W = K Q^T``. The published algorithm (arXiv 2308.16898, experiments) is
    ``normalization="each", norm_eps=2.22e-16, ridge=2.22e-16``.

    Parameters
    ----------
    prob : TokenSelection
        One problem, or a batch over leading axes. The run takes place on its device, in its dtype.
    parametrization : {"W", "KQ"}
    steps : int
        Number of steps, at least 0.
    lr : float
        Learning rate; with normalised steps the length of a step.
    normalized : bool
        Divide the gradient by its norm.
    normalization : {"joint", "each"}
        For "KQ": one norm ``sqrt(|gK|^2 + |gQ|^2)``, or each matrix by its own. No difference for "W".
    norm_eps : float
        Added to the norm before dividing. With 0 the step is exact; a gradient that is exactly zero
        (all tokens score the same, T = 1, z = 0, K = Q = 0) gives a zero step, never 0/0.
    ridge : float
        Coefficient of the squared norm, at least 0.
    loss : {"logistic", "exponential", "correlation"} or attncore.losses.Loss
    head : {"linear", "relu", "quadratic"} or attncore.heads.Head
    m : int, optional
        Width of K and Q (default d, or that of `init`).
    init : tensor or pair, optional
        ``W0 (..., d, d)`` or ``(K0, Q0)``. None: zeros for "W", :func:`gaussian_start` for "KQ".
        The last weights of a trajectory continue it.
    seed : int
        Of the Gaussian start.
    record : int or list of int
        Record every `record`-th state or the listed states; states 0 and `steps` always.
    callback : callable, optional
        Called with a :class:`Progress` at every recorded state; a true return value stops the run there.
    gradient : {"exact", "naive"}
        "exact" survives saturation; "naive" is the usual formula, to show what it does.

    Returns
    -------
    Trajectory

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value and what was expected.
    """
    if not isinstance(prob, TokenSelection):
        raise TypeError(f"prob must be a TokenSelection, got {short(prob)}")
    for name, flag in (("normalized", normalized),):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be True or False, got {short(flag)}")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {short(callback)}")
    one_of(parametrization, "parametrization", ("W", "KQ"))
    rule = _Rule(real(lr, "lr", above=0.0), normalized,
                 one_of(normalization, "normalization", ("joint", "each")) == "each",
                 real(norm_eps, "norm_eps", at_least=0.0), real(ridge, "ridge", at_least=0.0))
    schedule = record_schedule(record, steps := positive_int(steps, "steps", minimum=0))
    head, loss, form = resolve_head(head), resolve_loss(loss), FORMS[one_of(gradient, "gradient", FORMS)]
    weights = _start(prob, parametrization, m, init, positive_int(seed, "seed", minimum=0))
    with torch.no_grad():
        return _descend(prob, weights, rule, head, loss, form, schedule, callback)


def _descend(prob, weights, rule, head, loss, form, schedule, callback) -> Trajectory:
    X, z, y, v = prob.X, prob.z, prob.y, prob.v
    batch, steps, recorded = prob.batch, schedule[-1], set(schedule)
    eps = torch.finfo(X.dtype).eps
    saturated = torch.full(batch, -1, dtype=torch.int64, device=X.device)
    saved, losses, stopped = [[M.new_empty(len(schedule), *M.shape) for M in weights]], [], None
    saved, row = saved[0], 0
    for k in range(steps + 1):
        L = _logits(weights, X, z)
        step = form(L, X, y, v, head, loss)
        full = (step.tail <= eps).all(-1)
        saturated = torch.where((saturated < 0) & full, k, saturated)
        if k in recorded:
            u, _ = attended_margin(torch.softmax(L, -1), X, y, v, head)
            losses.append(loss.value(u).mean(-1))
            for store, M in zip(saved, weights, strict=True):
                store[row] = M
            row += 1
            state = tuple(store[row - 1] for store in saved)
            if callback is not None and callback(Progress(k, steps, losses[-1], state)) and k < steps:
                stopped = k
                break
        if k < steps:
            _take_step(weights, _weight_gradients(weights, step.mantissa, X, z), step.log_scale, rule)
    saved = [store[:row] for store in saved]
    K, Q = saved if len(saved) == 2 else (None, None)
    W = saved[0] if K is None else K @ Q.mT
    return Trajectory(torch.tensor(schedule[:row]), torch.stack(losses), W, K, Q,
                      torch.softmax(L, -1), saturated, stopped)
