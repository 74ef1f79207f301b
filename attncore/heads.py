"""Prediction heads ``h(a)`` on the attended vector ``a = X^T s``: value and gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from attncore.validation import as_tensor, one_of, real, short

__all__ = ["Head", "linear_head", "quadratic_head", "relu_head"]


@dataclass(frozen=True)
class Head:
    """A differentiable prediction head, given by its value and its gradient.

    Attributes
    ----------
    name : str
    value : callable
        ``(a, v) -> h(a)``: attended vectors `a` (..., n, d) and head weights `v` (..., 1, d) to (..., n).
    gradient : callable
        ``(a, v) -> dh/da``, shape (..., n, d) or broadcasting to it.
    linear : bool
        Whether ``h(a) = a . gradient`` with a gradient that does not depend on `a`; training then asks once.
    """

    name: str
    value: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    gradient: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    linear: bool = False


def linear_head() -> Head:
    """The :class:`Head` of the theorems, ``h(a) = v^T a``."""
    return Head("linear", lambda a, v: (a * v).sum(-1), lambda a, v: v.expand_as(a), linear=True)


def relu_head(hidden=None) -> Head:
    """One hidden layer, ``h(a) = v^T relu(V a)``, gradient ``V^T (v * [V a > 0])``.

    Parameters
    ----------
    hidden : (..., d, d), optional
        The matrix ``V``; the identity when left out.

    Returns
    -------
    Head

    Raises
    ------
    TypeError, ValueError
        If `hidden` is no square matrix, or, in use, if its size is not that of the tokens.
    """
    if hidden is None:
        return Head("relu", lambda a, v: (a.clamp(min=0) * v).sum(-1), lambda a, v: (a > 0) * v)
    V = as_tensor(hidden, "hidden")
    if V.ndim < 2 or V.shape[-1] != V.shape[-2]:
        raise ValueError(f"hidden must have shape (..., d, d), got {short(V)}")

    def layer(a):
        if a.shape[-1] != V.shape[-1]:
            raise ValueError(f"hidden must have shape (..., {a.shape[-1]}, {a.shape[-1]}) to match the tokens, "
                             f"got {short(V)}")
        return a @ V.mT

    return Head("relu", lambda a, v: (layer(a).clamp(min=0) * v).sum(-1), lambda a, v: ((layer(a) > 0) * v) @ V)


def quadratic_head(penalty: float = 1.0) -> Head:
    """A linear head with a quadratic penalty, ``h(a) = v^T a - penalty |a|^2``.

    Parameters
    ----------
    penalty : float
        At least 0.

    Returns
    -------
    Head

    Raises
    ------
    TypeError, ValueError
        If `penalty` is no real number, or negative.
    """
    lam = real(penalty, "penalty", at_least=0.0)
    return Head("quadratic", lambda a, v: (a * v).sum(-1) - lam * a.square().sum(-1),
                lambda a, v: v - 2 * lam * a)


HEADS = {"linear": linear_head, "relu": relu_head, "quadratic": quadratic_head}


def resolve_head(head) -> Head:
    """Return the :class:`Head` meant by a name ("linear", "relu", "quadratic") or a Head itself."""
    if isinstance(head, Head):
        return head
    if not isinstance(head, str):
        raise TypeError(f"head must be a name or an attncore.heads.Head, got {short(head)}")
    return HEADS[one_of(head, "head", HEADS)]()
