"""The algorithm on data: estimate, renormalise, start at the spectral point, descend in the metric of the tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from attncore.data import problem_generators
from attncore.preconditioning.descent import Geometry, History, Plan, Status, history, run
from attncore.preconditioning.empirical import Sample, attention_output, empirical_loss
from attncore.preconditioning.estimate import Estimate, estimate, sample_tensors
from attncore.preconditioning.population import excess, loss_gradient
from attncore.preconditioning.spectral import singular_values, spectral_init
from attncore.preconditioning.whitened import operands
from attncore.validation import as_tensor, one_of, positive_int, real, short

INIT_STREAM, BATCH_STREAM = 71, 72


@dataclass(frozen=True)
class Fit:
    """A fitted attention layer ``f(x) = y_mean + A sum_j softmax_j(x^T B x_j) x_j`` over its context tokens.

    Attributes
    ----------
    A : (..., p, d)
        Value matrix, in units of the targets (multiplied back by `tau`).
    B : (..., d, d)
        Merged key-query matrix.
    Sigma : (..., d, d)
        Estimated covariance of the tokens, ridge included: the metric of the descent.
    M : (..., p, d)
        Least-squares map, target of the spectral start: there ``A Sigma B^T = M``.
    tau : (...)
        The targets were divided by it, which bounds the logits.
    history : History
    status : (...) int8
        Of `Status`; `messages` spells it out.
    context : (..., n, d)
        Tokens attended to by default: those of the fit (centred with `intercept`).
    x_mean, y_mean : (..., 1, d), (..., 1, p)
        Subtracted from tokens and targets; zero unless ``intercept=True``.
    """

    A: torch.Tensor
    B: torch.Tensor
    Sigma: torch.Tensor
    M: torch.Tensor
    tau: torch.Tensor
    history: History
    status: torch.Tensor
    context: torch.Tensor
    x_mean: torch.Tensor
    y_mean: torch.Tensor

    @property
    def messages(self) -> list[str]:
        """One sentence for each problem, flattened over the leading axes."""
        return [Status(int(code)).message for code in self.status.reshape(-1)]

    def predict(self, X, context=None) -> torch.Tensor:
        """Outputs of the layer for tokens `X`.

        Parameters
        ----------
        X : (..., m, d)
            Query tokens, in the units of the fit.
        context : (..., n', d), optional
            Tokens to attend to. Default: the tokens of the fit, so that the prediction for a token does not depend
            on which others are asked for in the same call. Pass ``context=X`` for a new self-contained sequence.

        Returns
        -------
        (..., m, p) tensor.

        Raises
        ------
        TypeError, ValueError
            If an argument is not numeric or shapes do not fit.
        """
        X = self._tokens(X, "X")
        context = self.context if context is None else self._tokens(context, "context") - self.x_mean
        return attention_output(self.A, self.B, X - self.x_mean, context) + self.y_mean

    def _tokens(self, value, name: str) -> torch.Tensor:
        """Tokens in the dtype and dimension of the fit."""
        device = None if isinstance(value, torch.Tensor) else self.A.device
        tensor, d = as_tensor(value, name, dtype=self.A.dtype, device=device), self.A.shape[-1]
        if tensor.ndim < 2 or tensor.shape[-1] != d or 0 in tensor.shape:
            raise ValueError(f"{name} must have shape (..., m, {d}) to match the fit, got {short(tensor)}")
        return tensor


@dataclass(frozen=True)
class Descent:
    """A run on the population loss: final `A`, `B`, the `history` and the `status`, shapes as in :class:`Fit`."""

    A: torch.Tensor
    B: torch.Tensor
    history: History
    status: torch.Tensor


def fit(X, Y, method: str = "preconditioned", init="spectral", steps: int = 200, lam: float = 0.5,
        lr: float | None = None, *, c: float = 0.5, minibatch: int | None = None, momentum: float = 0.0,
        tau: float | None = None, ridge: float = 0.0, intercept: bool = False, rank: int | None = None,
        init_scale: float = 1.0, seed: int = 0, record=None, tol: float = 1e-10, callback=None,
        chunk: int | None = None, route: str | None = None) -> Fit:
    """Fit one softmax attention layer to a sample of tokens and targets.

    The objective is ``L_n(A, B) + lam * balance`` on targets divided by `tau`, with the covariance estimated from
    the tokens in place of the true one; ``L_n`` attends over all n tokens, own token included.

    Parameters
    ----------
    X : (..., n, d)
        Tokens, centred (or see `intercept`). Leading axes are independent problems.
    Y : (..., n, p)
        Targets.
    method : {"preconditioned", "gd", "sgd", "adam"}
        "preconditioned" steps along ``(gA Sigma^{-1}, Sigma^{-1} gB Sigma^{-1})``; "gd" along the plain gradient; "sgd"
        is "gd" on minibatches (64 queries unless `minibatch` says otherwise); "adam" is Adam.
    init : {"spectral", "random"} or (A0, B0)
        Polar spectral start, entries N(0, init_scale^2 / d), or given matrices (in the units of the fit's `A`, `B`).
    steps : int
        Steps, at least 0.
    lam : float
        Weight of the balancing regulariser, for every method; 0 leaves it out.
    lr : float, optional
        Fixed step. Default: the scale-free step ``c / max(s_1, |U|_2^2, |Z|_2^2)``, divided by
        ``max(|Sigma|_2, |Sigma|_2^2)`` for the plain gradient; 0.01 for Adam.
    c : float
        Constant of the scale-free step.
    minibatch : int, optional
        Queries a step, drawn without replacement; they attend to all n tokens.
    momentum : float
        Heavy-ball momentum in [0, 1), for every method but Adam.
    tau : float, optional
        Scale of the targets. Default ``max(sum s_i, 4 s_1)`` of ``M Sigma^{1/2}``; 1 switches renormalisation off.
    ridge : float
        Added to the covariance, relative to its mean eigenvalue. With 0 a singular covariance is an error.
    intercept : bool
        Subtract the means of tokens and targets first, and add the latter to predictions: the layer is then
        ``f(x) = y_mean + A sum_j softmax_j (x_j - x_mean)``. Without it clearly uncentred tokens are an error.
    rank : int, optional
        Truncate the spectral start to this rank.
    init_scale : float
        Standard deviation of the random start times sqrt(d).
    seed : int
        Of random start and minibatches; problem b depends on (seed, b) only.
    record : int or list of int, optional
        Record every so many steps, or at those listed; 0 and the last always. Default about a hundred records.
    tol : float
        Stop a problem when its gradient norm in the metric is at most ``tol * s_1^{3/2}``; full batches only.
    callback : callable, optional
        ``callback(step, A, B, loss)`` at each record, in units of the data; a true answer stops the run.
    chunk, route
        As in `empirical_gradient`.

    Returns
    -------
    Fit

    Raises
    ------
    TypeError, ValueError
        For bad arguments; for a singular covariance without ridge, uncentred tokens without intercept, zero targets.

    Notes
    -----
    A reconstruction from first principles of the algorithm of arXiv 2603.01514, whose listing was not available.
    A run that diverges ends with status `Status.DIVERGED` and raises nothing.

    Examples
    --------
    >>> X = torch.randn(256, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> model = fit(X, 0.2 * X[:, :2], steps=50)
    >>> model.predict(X[:4]).shape
    torch.Size([4, 2])
    """
    X, Y, batch = sample_tensors(X, Y)
    plan = Plan.checked(method, steps, lam, lr, c, momentum, record, tol, callback)
    minibatch = 64 if minibatch is None and plan.method == "sgd" else minibatch
    if minibatch is not None:
        minibatch, plan = min(positive_int(minibatch, "minibatch"), X.shape[1]), replace(plan, tol=0.0)
    moments = estimate(X, Y, ridge, intercept, tau)
    X, Y = X - moments.x_mean, (Y - moments.y_mean) / moments.tau[:, None, None]
    A, B = _start(init, moments, batch, rank, real(init_scale, "init_scale", above=0), seed)
    draw = None if minibatch is None else _minibatches(X, Y, minibatch, seed)
    sample = Sample(X, X.shape[1] if minibatch is None else minibatch, chunk, route)

    def gradient(A, B):
        queries, targets = (X, Y) if draw is None else draw()
        return sample.loss_and_gradient(A, B, queries, targets)

    def loss(A, B):
        return empirical_loss(A, B, X, Y, chunk=chunk, route=route)

    scale = moments.tau
    geometry, recorded = Geometry(moments.Sigma, moments.top), None if draw is None else loss
    A, B, records, status = run(plan, A, B, geometry, gradient, recorded, _show(plan, batch, scale))
    named = dict(A=A * scale[:, None, None], B=B, Sigma=moments.Sigma, M=moments.M, context=X, x_mean=moments.x_mean,
                 y_mean=moments.y_mean)
    named = {name: value.reshape(*batch, *value.shape[1:]) for name, value in named.items()}
    return Fit(**named, tau=scale.reshape(batch), history=history(records, batch, scale), status=status.reshape(batch))


def descend(A, B, Sigma, M, method: str = "preconditioned", steps: int = 200, lam: float = 0.5, lr: float | None = None,
            *, c: float = 0.5, momentum: float = 0.0, record=None, tol: float = 0.0, callback=None) -> Descent:
    """Descend on the population loss ``L + lam * balance`` from ``(A, B)``; arguments as in :func:`fit`.

    Parameters
    ----------
    A : (..., p, d)
    B : (..., d, d)
    Sigma : (..., d, d)
    M : (..., p, d)
    method : {"preconditioned", "gd", "adam"}

    Returns
    -------
    Descent
        With ``history.loss`` the excess loss, noise floor left out.

    Raises
    ------
    TypeError, ValueError
        As in `population_gradient`, or for ``method="sgd"``, which needs a sample.
    """
    A, B, Sigma, M = operands(A, B, Sigma, M)
    plan = Plan.checked(method, steps, lam, lr, c, momentum, record, tol, callback)
    if plan.method == "sgd":
        raise ValueError("method must be 'preconditioned', 'gd' or 'adam' without a sample, got 'sgd'")
    batch = torch.broadcast_shapes(*(t.shape[:-2] for t in (A, B, Sigma, M)))
    A, B, Sigma, M = (t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:]) for t in (A, B, Sigma, M))
    ones = torch.ones_like(Sigma[:, 0, 0])

    def gradient(A, B):
        return excess(A, B, Sigma, M), *loss_gradient(A, B, Sigma, M)

    A, B, records, status = run(
        plan, A, B, Geometry(Sigma, singular_values(Sigma, M)[:, 0]), gradient, None, _show(plan, batch, ones)
    )
    A, B = (t.reshape(*batch, *t.shape[1:]) for t in (A, B))
    return Descent(A, B, history(records, batch, ones), status.reshape(batch))


def _show(plan: Plan, batch, scale):
    """The user's callback in units of the data and in the user's batch shape; never stops when there is none."""

    def show(step, A, B, loss):
        if plan.callback is None:
            return False
        A = (A * scale[:, None, None]).reshape(*batch, *A.shape[1:])
        return bool(plan.callback(step, A, B.reshape(*batch, *B.shape[1:]), (loss * scale.square()).reshape(batch)))

    return show


def _start(init, moments: Estimate, batch, rank, init_scale: float, seed):
    """First iterate, in units of the scaled targets."""
    M, (g, p, d) = moments.M / moments.tau[:, None, None], moments.M.shape
    if isinstance(init, str):
        if one_of(init, "init", ("spectral", "random")) == "spectral":
            return spectral_init(moments.Sigma, M, rank)
        draws = [rng.standard_normal((p + d, d)) for rng in problem_generators(seed, g, INIT_STREAM)]
        both = torch.stack([torch.from_numpy(draw) for draw in draws]).to(M) * (init_scale / d**0.5)
        return both[:, :p], both[:, p:]
    if not isinstance(init, (tuple, list)) or len(init) != 2:
        raise TypeError(f"init must be 'spectral', 'random' or a pair (A0, B0), got {short(init)}")
    A, B = (as_tensor(init[i], name, dtype=M.dtype, device=M.device) for i, name in enumerate(("A0", "B0")))
    for name, value, shape in (("A0", A, (p, d)), ("B0", B, (d, d))):
        if value.shape not in {shape, (*batch, *shape)}:
            raise ValueError(f"{name} must have shape {shape} or {(*batch, *shape)}, got {short(value)}")
    A, B = (value.expand(*batch, *value.shape[-2:]).reshape(g, *value.shape[-2:]) for value in (A, B))
    return A / moments.tau[:, None, None], B


def _minibatches(X, Y, size: int, seed):
    """A function giving fresh (queries, targets) of `size` rows a problem, problem b by its own generator."""
    generators = list(problem_generators(seed, len(X), BATCH_STREAM))
    problems = torch.arange(len(X), device=X.device)[:, None]

    def draw():
        rows = [torch.from_numpy(rng.choice(X.shape[1], size, replace=False, shuffle=False)) for rng in generators]
        index = torch.stack(rows).to(X.device)
        return X[problems, index], Y[problems, index]

    return draw
