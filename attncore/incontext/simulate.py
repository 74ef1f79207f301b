"""One front door: simulate in-context learning at any of five levels, or follow its gradient flow."""

from __future__ import annotations

import torch

from attncore.incontext.arrays import stack_records
from attncore.incontext.columns import build, specs
from attncore.incontext.descent import descend, first_rise
from attncore.incontext.flow import closed_states, evaluate, flow_times, integrate
from attncore.incontext.result import Trajectory, rises_sentence
from attncore.incontext.sampled import simulate_sampled
from attncore.incontext.settings import LEVELS, recorded_steps, resolve, unit_interval
from attncore.validation import one_of, positive_int, real

EXPECTATIONS = ("auto", "sum", "integral")


def simulate(level, K=None, N=None, p=None, p1=None, eta=1.0, steps=2000, record=1, *, prompts=4096, seed=0,
             features=None, d=None, expectation="auto", tail=1e-16, device=None) -> Trajectory:
    r"""Train the in-context model of one softmax layer from ``Q = 0`` by gradient descent.

    Tasks ``w ~ N(0, I)``, prompts of `N` tokens and a query drawn from K orthonormal features with probabilities
    `p`, loss :math:`L(Q) = \tfrac12 E(\hat y - \langle w, x_q\rangle)^2`.

    Parameters
    ----------
    level : str
        "token": sampled prompts, autograd on ``Q``, the definition.
        "count": sampled counts, O(K) a prompt.
        "exact": no sampling; finite `N`, all prompts summed.
        "mean_field": ``N -> infinity``.
        "closed": the *gradient flow* of the mean field at times ``steps``, in closed form for the balanced and the
        dominant column; no closed form is known for the other columns, which are integrated adaptively.
    K, N : int or array_like (...)
        Features and prompt length.  `N` is not used by the mean field and the closed form.
    p : array_like (..., K), optional
        Any probabilities, all positive; gives one column a feature.
    p1 : float or array_like (...), optional
        Feature 1 has probability `p1`, the others share the rest.  Neither `p` nor `p1`: all equally likely.
    eta : float or array_like (...)
        Step size.  `K`, `N`, `p1`, `eta` and the leading axes of `p` broadcast; every result has their shape.
    steps : int
        Number of steps.
    record : int or list of int
        Keep every `record`-th step, or these; the start and the last step always.
    prompts, seed : int
        Fresh prompts a step at the sampled levels, and the seed of their generator.
    features, d : array_like (K, d), int, optional
        Orthonormal features of the token level (default: the standard basis of ``R^d``).
    expectation : {"auto", "sum", "integral"}
        How the exact level averages over counts: finite sums over what matters by exchangeability, or one integral
        over a Laplace variable (relative error below 2e-15 whatever `N` is; the only way for a general `p`).
        "auto" sums over one count and integrates otherwise.
    tail : float
        Largest probability mass the sums may leave out; 0 sums everything.
    device : torch.device, optional
        Default: the device of the first tensor among the settings, else the CPU.

    Returns
    -------
    Trajectory
        With ``columns["balanced"]``, or ``["dominant"]`` and ``["under"]``, or ``[0] .. [K-1]``.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    ValueError
        If `level` is unknown, `p` is not a distribution, ``K > d``, ``N < 1``, ``eta <= 0``, or the features are
        not orthonormal.

    Notes
    -----
    Huang, Cheng and Liang, *In-Context Convergence of Transformers*, ICML 2024 (model and columns); the exact
    levels and the closed form are this course's.

    Examples
    --------
    >>> from attncore import incontext
    >>> run = incontext.simulate("exact", K=20, N=200, steps=500)
    >>> int(run.columns["balanced"].alpha.argmax())
    468
    """
    one_of(level, "level", LEVELS)
    settings = resolve(level, K=K, N=N, p=p, p1=p1, eta=eta, device=device)
    if d is not None and positive_int(d, "d") < int(settings.K.max()):
        raise ValueError(f"d must be at least K: K={int(settings.K.max())} orthonormal features "
                         f"do not fit into d={d} dimensions")
    if features is not None and level != "token":
        raise ValueError(f"features are only used at level 'token', got them at level {level!r}")
    recorded = recorded_steps(steps, record)
    if level == "closed":
        return _flow(level, settings, flow_times(recorded), recorded, "mean_field", 1e-12, closed=True)
    if level in ("token", "count"):
        columns, loss, rises = simulate_sampled(level, settings, steps, recorded, positive_int(prompts, "prompts", 2),
                                                positive_int(seed, "seed", 0), features, d)
        return _trajectory(level, "gd", settings, recorded, columns, rises, torch.zeros_like(settings.eta), loss)
    return _descent(level, settings, steps, recorded, expectation, tail)


def flow(level, times, K=None, N=None, p=None, p1=None, eta=1.0, *, expectation="auto", tail=1e-16, rtol=1e-12,
         device=None) -> Trajectory:
    """Gradient flow ``dQ/dt = -eta grad L`` at the given `times`, up to 1e12 and beyond in tens of milliseconds.

    Parameters
    ----------
    level : {"exact", "mean_field", "closed"}
        As in `simulate`.
    times : array_like (R,)
        Strictly increasing times, the first may be 0.
    K, N, p, p1, eta, expectation, tail, device
        As in `simulate`.
    rtol : float
        Relative and absolute tolerance of the integrator (LSODA in the time ``log(1 + t)``).

    Returns
    -------
    Trajectory
        With ``dynamics == "flow"`` and `times` as its `steps`.

    Raises
    ------
    TypeError, ValueError
        As `simulate`; also for a sampled level, and for times that do not increase.
    """
    one_of(level, "level", ("exact", "mean_field", "closed"))
    settings = resolve(level, K=K, N=N, p=p, p1=p1, eta=eta, device=device)
    times = flow_times(times)
    inner = "mean_field" if level == "closed" else level
    return _flow(level, settings, times, times, inner, real(rtol, "rtol", above=0.0), closed=level == "closed",
                 expectation=one_of(expectation, "expectation", EXPECTATIONS), tail=unit_interval(tail, "tail"))


def _descent(level, settings, steps, recorded, expectation, tail) -> Trajectory:
    one_of(expectation, "expectation", EXPECTATIONS)
    if settings.layout == "general" and expectation == "sum":
        raise ValueError("expectation must be 'auto' or 'integral' for a general p, got 'sum'")
    columns, total, dropped = {}, 0.0, 0.0
    for spec in specs(level, settings, expectation=expectation, tail=unit_interval(tail, "tail")):
        kept, losses = descend(spec, steps, recorded)
        columns |= build(spec, settings, *kept)
        share, lost = spec.share, spec.model.dropped
        weighted = torch.as_tensor(losses).to(settings.device) * torch.as_tensor(share).to(settings.device)
        if spec.name == "general":
            weighted, lost = weighted.sum(-1), lost.max(-1)
        total, dropped = total + weighted, torch.as_tensor(lost).maximum(torch.as_tensor(dropped))
    return _trajectory(level, "gd", settings, recorded, columns, first_rise(total, settings.device), dropped)


def _flow(level, settings, times, recorded, inner, rtol, *, closed, expectation="auto", tail=1e-16) -> Trajectory:
    columns, dropped = {}, 0.0
    for spec in specs(inner, settings, expectation=expectation, tail=tail):
        if closed and spec.name in ("balanced", "dominant"):
            states = closed_states(spec, settings, times)
        else:
            states = integrate(spec, times, rtol)
        columns |= build(spec, settings, *stack_records(evaluate(spec, states)))
        lost = spec.model.dropped.max(-1) if spec.name == "general" else spec.model.dropped
        dropped = torch.as_tensor(lost).maximum(torch.as_tensor(dropped))
    rises = torch.full(tuple(settings.shape), -1, dtype=torch.int64, device=settings.device)
    return _trajectory(level, "flow", settings, recorded, columns, rises, dropped)


def _trajectory(level, dynamics, settings, recorded, columns, rises, dropped, loss=None) -> Trajectory:
    parts = columns.values()
    if loss is None:
        loss = sum(c.p_k * c.multiplicity * c.loss_k for c in parts)
    return Trajectory(
        level=level, dynamics=dynamics, steps=torch.as_tensor(recorded, device=settings.device), columns=columns,
        loss=loss, floor=sum(c.p_k * c.multiplicity * c.floor_k for c in parts), loss_rises=rises,
        dropped=dropped.to(settings.device), status=rises_sentence(rises), K=settings.K, N=settings.N,
        p=settings.probabilities(), eta=settings.eta)
