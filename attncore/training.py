"""Gradient descent on the attention weights, for whole ensembles at once.

One loop serves ``W`` and ``(K, Q)``, plain and normalised steps, a ridge, any decreasing loss and any head
given by value and gradient. Gradients are closed forms (:mod:`attncore.gradients`) and nothing is taped, so
memory does not grow with the number of steps, only with the number of recorded states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from attncore.arrays import choose_arrays
from attncore.data import TokenSelection, check_problem
from attncore.gradients import FORMS, Objective, flattened
from attncore.heads import resolve_head
from attncore.losses import resolve_loss
from attncore.threads import single_thread
from attncore.validation import one_of, positive_int, real, short
from attncore.weights import PARAMETRIZATIONS, start_weights

__all__ = ["Progress", "Trajectory", "train"]


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
        Key-query matrix; ``K Q^T`` when `K` and `Q` are trained.
    K, Q : (R, ..., d, m) or None
        The factors, None for parametrization "W".
    attention : (..., n, T)
        Attention maps of the last recorded state.
    saturated : (...) int64
        First state in which every sequence of the problem holds all its attention on one token but for
        one machine epsilon: ``sum_t exp(L_it - max_t L_it) <= 1 + eps`` in the arithmetic of the dtype.
        -1 if no state up to the last recorded one was. From about there on the naive gradient
        ``s (p - f)`` is rounding noise; the exact one is not affected.
    loss_rises : (...) int64
        First recorded state with a higher objective (loss plus ridge) than the recorded one before it, beyond
        rounding; -1 if there is none. For plain descent it means that the step is too large; steps of fixed
        length also overshoot a minimum at a finite point, and then hover around it.
    diverged : (...) int64
        First recorded state whose loss or weights are not finite, -1 if there is none. Nothing after it
        counts. The other problems of the batch are not affected.
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
    loss_rises: torch.Tensor
    diverged: torch.Tensor
    stopped: int | None

    @property
    def status(self) -> str:
        """What `diverged` and `loss_rises` say, in a sentence with what to do about it."""
        found = []
        for first, words in ((self.diverged, "the weights overflowed"), (self.loss_rises, "the loss rose")):
            hit = first >= 0
            if bool(hit.any()):
                where = f" in {int(hit.sum())} of {hit.numel()} runs" if hit.ndim else ""
                found.append(f"{words}{where}, first at state {int(first[hit].min())}")
        if not found:
            return "ok: the loss never rose from one recorded state to the next"
        return f"{'; '.join(found)}: use a smaller lr"


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
        ``(W,)`` or ``(K, Q)`` in this state; as `init` they continue the run.
    """

    step: int
    steps: int
    loss: torch.Tensor
    weights: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class StepRule:
    """How a step follows from a gradient; the arguments of :func:`train` of the same names."""

    lr: float
    normalized: bool
    normalization: str
    norm_eps: float
    ridge: float

    def step(self, arrays, matrices, gradients, log_scale) -> None:
        """Move `matrices` in place along minus the gradient ``exp(log_scale) * gradients`` (plus ridge)."""
        if self.ridge:
            gradients, log_scale = self._with_ridge(arrays.xp, matrices, gradients, log_scale)
        if self.normalized:
            rates = [self.lr / norm for norm in self._norms(arrays, gradients, log_scale)]
        else:
            rates = [self.lr * arrays.xp.exp(log_scale)] * len(matrices)
        for M, G, rate in zip(matrices, gradients, rates, strict=True):
            G *= rate[:, None, None]
            M -= G

    def _with_ridge(self, xp, matrices, gradients, log_scale):
        """Gradient of ``loss + ridge |matrices|^2``: both terms as mantissas of the larger scale."""
        log_ridge = math.log(2 * self.ridge)
        scale = log_scale.clip(min=log_ridge)
        a, b = (xp.exp(log - scale)[:, None, None] for log in (log_scale, log_ridge))
        return [a * G + b * M for G, M in zip(gradients, matrices, strict=True)], scale

    def _norms(self, arrays, gradients, log_scale):
        """What each mantissa is divided by, in units of ``exp(log_scale)``: never zero."""
        xp = arrays.xp
        squares = [arrays.inner(G, G) for G in gradients]
        if self.normalization == "joint" and len(squares) > 1:
            squares = [squares[0] + squares[1]] * 2
        norms = [xp.sqrt(square) for square in squares]
        if self.norm_eps:
            slack = self.norm_eps * xp.exp(-log_scale)
            return [norm + slack for norm in norms]
        return [norm + (norm == 0) for norm in norms]


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


def train(prob: TokenSelection, parametrization: str = "W", steps: int = 2000, lr: float = 0.1,
          normalized: bool = True, normalization: str = "joint", norm_eps: float = 0.0, ridge: float = 0.0,
          loss="logistic", head="linear", m: int | None = None, init=None, seed: int = 0, record=100,
          callback: Callable[[Progress], object] | None = None, gradient: str = "exact") -> Trajectory:
    r"""Train the attention weights by full-batch gradient descent with a fixed head.

    Minimises, for every problem of the batch at once::

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
        ``W0 (..., d, d)`` or ``(K0, Q0)``. None: zeros for "W", :func:`~attncore.weights.gaussian_start` for "KQ".
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
        Naming the argument, its value and what was expected. A run that diverges raises nothing: see
        `Trajectory.status`.

    Examples
    --------
    >>> from attncore.data import token_selection
    >>> path = train(token_selection(4, 5, 6, batch=3), steps=200, record=100)
    >>> path.W.shape, path.steps.tolist(), path.status
    (torch.Size([3, 3, 6, 6]), [0, 100, 200], 'ok: the loss never rose from one recorded state to the next')
    """
    check_problem(prob)
    if not isinstance(normalized, bool):
        raise TypeError(f"normalized must be True or False, got {short(normalized)}")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {short(callback)}")
    rule = StepRule(real(lr, "lr", above=0.0), normalized,
                    one_of(normalization, "normalization", ("joint", "each")),
                    real(norm_eps, "norm_eps", at_least=0.0), real(ridge, "ridge", at_least=0.0))
    schedule = record_schedule(record, positive_int(steps, "steps", minimum=0))
    one_of(parametrization, "parametrization", PARAMETRIZATIONS)
    start = start_weights(prob, parametrization, m, init, positive_int(seed, "seed", minimum=0))
    head, loss = resolve_head(head), resolve_loss(loss)
    one_of(gradient, "gradient", FORMS)
    with torch.no_grad(), np.errstate(over="ignore", invalid="ignore"), single_thread(prob.X):
        X, z, y, v = flattened(prob)
        arrays = choose_arrays(X, z, start[0].shape[-1])
        weights = PARAMETRIZATIONS[parametrization](arrays, [M.reshape(-1, *M.shape[-2:]) for M in start])
        objective = Objective(arrays, y, v, prob.batch, head, loss, gradient)
        return _Run(weights, objective, rule, schedule, X).follow(callback)


class _Run:
    """One run: the state between steps, and what has been recorded of it."""

    def __init__(self, weights, objective, rule, schedule, X):
        self.weights, self.objective, self.rule, self.schedule = weights, objective, rule, schedule
        self.arrays, self.batch = weights.arrays, objective.batch
        self.records = [X.new_empty(len(schedule), *self.batch, *M.shape[1:]) for M in weights.matrices]
        self.losses = X.new_empty(len(schedule), *self.batch)
        self.unsaturated = self.arrays.array(X.new_ones(len(X)))  # 1 until the problem is saturated, then 0
        self.saturated = self.arrays.array(X.new_zeros(len(X), dtype=torch.float64))
        self.limit = 1 + torch.finfo(X.dtype).eps

    def follow(self, callback) -> Trajectory:
        """Take the steps, recording on schedule, until the end or until the callback stops the run."""
        state, steps = 0, self.schedule[-1]
        for row, target in enumerate(self.schedule):
            for _ in range(target - state):
                self._step()
            state = target
            logits = self._record(row)
            if callback is not None and callback(self._progress(row)) and state < steps:
                break
        self._watch(self.arrays.xp.exp(logits - self.arrays.largest(logits)).sum(0))
        return self._trajectory(row + 1, logits, None if state == steps else state)

    def _step(self):
        mantissa, log_scale, normaliser = self.objective.gradient(self.weights.logits())
        self._watch(normaliser)
        gradients = self.weights.gradients(mantissa)
        self.rule.step(self.arrays, self.weights.matrices, gradients, log_scale)

    def _watch(self, normaliser):
        """Count, for each problem, the states before the first saturated one."""
        self.unsaturated *= ~(self.arrays.largest(normaliser) <= self.limit)  # nan is not saturated
        self.saturated += self.unsaturated

    def _record(self, row):
        for store, M in zip(self.records, self.weights.matrices, strict=True):
            store[row] = self.arrays.tensor(M).view(store.shape[1:])
        logits = self.weights.logits()
        self.losses[row] = self.objective.value(logits).reshape(self.batch)
        return logits

    def _progress(self, row):
        return Progress(self.schedule[row], self.schedule[-1], self.losses[row].clone(),
                        tuple(store[row].clone() for store in self.records))

    def _trajectory(self, rows, logits, stopped):
        records = [store[:rows] for store in self.records]
        K, Q = records if len(records) == 2 else (None, None)
        attention = self.objective.attention(logits).permute(2, 1, 0)
        saturated, unsaturated = (self.arrays.tensor(a).long() for a in (self.saturated, self.unsaturated))
        norm, loss = torch.linalg.vector_norm, self.losses[:rows]  # norms, since squares may overflow
        objective = loss
        if self.rule.ridge:
            objective = loss + self.rule.ridge * sum(norm(M, dim=(-2, -1)).square() for M in records)
        slack = 64 * torch.finfo(loss.dtype).eps * objective[:-1].abs()
        finite = sum((norm(M, torch.inf, dim=(-2, -1)) for M in records), loss).isfinite()
        return Trajectory(
            steps=torch.tensor(self.schedule[:rows]), loss=loss,
            loss_rises=self._first(objective[1:] > objective[:-1] + slack, 1),
            diverged=self._first(~finite, 0),
            W=records[0] if K is None else K @ Q.mT, K=K, Q=Q,
            attention=attention.reshape(*self.batch, *attention.shape[-2:]),
            saturated=torch.where(unsaturated > 0, -1, saturated).reshape(self.batch), stopped=stopped)

    def _first(self, condition, offset: int) -> torch.Tensor:
        """First recorded state, counted from row `offset`, in which `condition` (rows, ...) holds, or -1."""
        if not len(condition):
            return torch.full(self.batch, -1, device=condition.device)
        states = torch.tensor(self.schedule, device=condition.device)
        first = states[condition.to(torch.uint8).argmax(0) + offset]
        return torch.where(condition.any(0), first, -1)
