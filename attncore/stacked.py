r"""Two softmax attention layers, one on the other, trained together with a gradient that survives saturation.

Layer one lets every token look at its sequence and adds what it sees; layer two reads one of the results::

    x'_it = x_it + X_i^T softmax(X_i W_1 x_it),      f_i = v^T X'_i^T softmax(C_i W_2 z_i).

The keys `C_i` of layer two are either what layer one hands on, ``X'_i``, or the tokens themselves, ``X_i``.
With the scores ``gamma_it = y_i v^T x_it`` both layers together are one attention over *routes*:
``y_i f_i = sum_t s2_it sum_tau s1_itt' (gamma_it + gamma_it')``, largest on the route (opt_i, opt_i).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attncore.data import TokenSelection, check_problem
from attncore.gradients import flattened
from attncore.losses import Loss, resolve_loss
from attncore.threads import single_thread
from attncore.training import record_schedule
from attncore.validation import broadcast_batch, common, one_of, positive_int, real, short

__all__ = ["StackedState", "StackedTrajectory", "stacked_forward", "stacked_gradient", "train_stacked"]

KEYS = ("handed", "tokens")


@dataclass(frozen=True)
class StackedState:
    """What the two layers do at given weights.

    Attributes
    ----------
    first : (..., n, T, T)
        Attention of layer one: row t holds the weights that token t, as a query, gives to the tokens.
    handed : (..., n, T, d)
        Tokens that layer one hands on, ``x_t + sum_tau first[t, tau] x_tau``.
    second : (..., n, T)
        Attention of layer two.
    u : (..., n)
        ``y_i f_i``, the argument of the loss.
    """

    first: torch.Tensor
    handed: torch.Tensor
    second: torch.Tensor
    u: torch.Tensor

    @property
    def read(self) -> torch.Tensor:
        """Position (..., n) that layer two gives most weight: the query of layer one that is read."""
        return self.second.argmax(-1)

    @property
    def chosen(self) -> torch.Tensor:
        """Token (..., n, T) that each query of layer one gives most weight."""
        return self.first.argmax(-1)


@dataclass(frozen=True)
class StackedTrajectory:
    """What :func:`train_stacked` returns. R is the number of recorded states.

    Attributes
    ----------
    steps : (R,) int64
    loss : (R, ...)
        Mean loss over the n sequences.
    W1, W2 : (R, ..., d, d)
        Key-query matrices of the two layers.
    final : StackedState
        Of the last recorded state.
    keys : str
    """

    steps: torch.Tensor
    loss: torch.Tensor
    W1: torch.Tensor
    W2: torch.Tensor
    final: StackedState
    keys: str


def stacked_forward(prob: TokenSelection, W1, W2, keys: str = "handed") -> StackedState:
    """Run both layers.

    Parameters
    ----------
    prob : TokenSelection
        Tokens (..., n, T, d), queries of layer two (..., n, d), labels and head.
    W1, W2 : array_like (..., d, d)
        Leading axes broadcast with the problems'.
    keys : {"handed", "tokens"}
        Where layer two takes its keys from: what layer one hands on, or the tokens as they came.

    Returns
    -------
    StackedState

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value and what was expected.
    """
    W1, W2 = _checked(prob, W1, W2, keys)
    return _forward(prob.X, prob.z, prob.y, prob.v, W1, W2, keys)[0]


def stacked_gradient(prob: TokenSelection, W1, W2, keys: str = "handed", loss="logistic"):
    r"""Gradient of ``(1/n) sum_i ell(y_i f_i)`` with respect to both matrices.

    In each layer ``dL/dh_t = s_t (D_t - sum_u s_u D_u)`` with `D` relative to the token of the largest weight, as
    in :mod:`attncore.gradients`: no difference of nearly equal numbers is formed however saturated the layers
    are. Nothing is taken out of the exponent, so below about 1e-300 the gradient underflows.

    Parameters and errors as in :func:`stacked_forward`; `loss` as in :func:`attncore.training.train`.

    Returns
    -------
    G1, G2 : (..., d, d)
    """
    W1, W2 = _checked(prob, W1, W2, keys)
    with torch.no_grad():
        return _gradient(prob.X, prob.z, prob.y, prob.v, W1, W2, keys, resolve_loss(loss))


def train_stacked(prob: TokenSelection, steps: int = 2000, lr: float = 0.1, keys: str = "handed",
                  loss="logistic", init=None, record=100) -> StackedTrajectory:
    r"""Train both layers together by gradient descent with steps of fixed length.

    .. math:: (W_1, W_2) \leftarrow (W_1, W_2)
              - \eta\,\frac{(\nabla_1 L, \nabla_2 L)}{\sqrt{|\nabla_1 L|_F^2 + |\nabla_2 L|_F^2}}

    Parameters
    ----------
    prob : TokenSelection
        One problem, or a batch over leading axes.
    steps, lr, loss, record
        As in :func:`attncore.training.train`. A gradient that is exactly zero gives a zero step.
    keys : {"handed", "tokens"}
        As in :func:`stacked_forward`.
    init : pair of array_like, optional
        ``(W1, W2)``, each (..., d, d); zeros when left out.

    Returns
    -------
    StackedTrajectory

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value and what was expected.

    Examples
    --------
    >>> from attncore.data import token_selection
    >>> run = train_stacked(token_selection(3, 4, 6, batch=2), steps=300, record=100)
    >>> run.W1.shape, run.final.read.shape, bool((run.loss[-1] < run.loss[0]).all())
    (torch.Size([4, 2, 6, 6]), torch.Size([2, 3]), True)
    """
    check_problem(prob)
    schedule = record_schedule(record, positive_int(steps, "steps", minimum=0))
    lr, loss = real(lr, "lr", above=0.0), resolve_loss(loss)
    d = prob.X.shape[-1]
    zero = prob.X.new_zeros(d, d)
    W1, W2 = _checked(prob, *((zero, zero) if init is None else init), keys)
    with torch.no_grad(), single_thread(prob.X):
        X, z, y, v = flattened(prob)
        W1, W2 = (W.expand(*prob.batch, d, d).reshape(-1, d, d).clone() for W in (W1, W2))
        losses, firsts, seconds, done = [], [], [], 0
        for target in schedule:
            for _ in range(target - done):
                _step(W1, W2, *_gradient(X, z, y, v, W1, W2, keys, loss), lr)
            done = target
            state = _forward(X, z, y, v, W1, W2, keys)[0]
            losses.append(loss.value(state.u).mean(-1).reshape(prob.batch))
            firsts.append(W1.reshape(*prob.batch, d, d).clone())
            seconds.append(W2.reshape(*prob.batch, d, d).clone())
    final = StackedState(*(part.reshape(*prob.batch, *part.shape[1:])
                           for part in (state.first, state.handed, state.second, state.u)))
    return StackedTrajectory(torch.tensor(schedule), torch.stack(losses), torch.stack(firsts),
                             torch.stack(seconds), final, keys)


def _checked(prob, W1, W2, keys):
    check_problem(prob)
    one_of(keys, "keys", KEYS)
    W1, W2, X = common(W1=W1, W2=W2, X=prob.X)
    d = X.shape[-1]
    for name, W in (("W1", W1), ("W2", W2)):
        if W.ndim < 2 or W.shape[-2:] != (d, d):
            raise ValueError(f"{name} must have shape (..., {d}, {d}) to match prob, got {short(W)}")
    broadcast_batch(W1=W1.shape[:-2], W2=W2.shape[:-2], prob=prob.batch)
    return W1.to(prob.X.dtype), W2.to(prob.X.dtype)


def _forward(X, z, y, v, W1, W2, keys):
    """The state, and the keys and queried keys of layer two that the gradient needs again."""
    first = torch.softmax((X @ W1.mT.unsqueeze(-3)) @ X.mT, -1)
    handed = X + first @ X
    C = handed if keys == "handed" else X
    asked = (z @ W2.mT).unsqueeze(-1)
    second = torch.softmax((C @ asked).squeeze(-1), -1)
    u = y * ((handed @ v[..., None, :, None]).squeeze(-1) * second).sum(-1)
    return StackedState(first, handed, second, u), C, asked


def _slopes(s, p):
    """``s_t (p_t - sum_u s_u p_u)`` over the last axis, with p relative to the token of the largest weight."""
    relative = p - p.take_along_dim(s.argmax(-1, keepdim=True), -1)
    return s * (relative - (s * relative).sum(-1, keepdim=True))


def _gradient(X, z, y, v, W1, W2, keys, loss: Loss):
    state, C, asked = _forward(X, z, y, v, W1, W2, keys)
    weight = (-y * loss.log_slope(state.u).exp() / y.shape[-1]).unsqueeze(-1)
    head = v[..., None, None, :]
    slope2 = weight * _slopes(state.second, (state.handed @ head.mT).squeeze(-1))
    on_handed = (weight * state.second).unsqueeze(-1) * head
    if keys == "handed":
        on_handed = on_handed + slope2.unsqueeze(-1) * asked.mT
    slope1 = _slopes(state.first, on_handed @ X.mT)
    G1 = ((slope1 @ X).flatten(-3, -2)).mT @ X.flatten(-3, -2)
    G2 = (slope2.unsqueeze(-2) @ C).squeeze(-2).mT @ z
    return G1, G2


def _step(W1, W2, G1, G2, lr):
    """Move both matrices in place by `lr` along minus the joint direction."""
    both = torch.stack([G1, G2])
    largest = both.abs().amax((0, -2, -1), keepdim=True)
    both = both / torch.where(largest > 0, largest, 1.0)
    length = both.square().sum((0, -2, -1), keepdim=True).sqrt()
    both = both * (lr / torch.where(length > 0, length, 1.0))
    W1 -= both[0]
    W2 -= both[1]
