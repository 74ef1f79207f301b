"""Loss and gradient over a finite sample: one softmax attention layer whose context is the sample itself.

Model of arXiv 2603.01514: ``f(x_i) = A sum_j softmax_j(x_i^T B x_j) x_j``, loss ``1/(2m) sum_i |f(x_i) - y_i|^2``.
Two independent routes give every number here: the closed form of `kernel`, in memory of order n times the block,
and automatic differentiation through ``scaled_dot_product_attention``, which is also the way on a GPU.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from attncore.preconditioning import kernel
from attncore.validation import common, one_of, positive_int, short

ROUTES = ("closed", "sdpa")
GROUP = 2**22


def _arguments(named: dict) -> dict:
    """Checked tensors with one dtype and one explicit batch shape; `context` defaults to `X`."""
    if named.get("context") is None:
        named.pop("context", None)
    tensors = dict(zip(named, common(**named), strict=True))
    tensors.setdefault("context", tensors["X"])
    X = tensors["X"]
    if X.ndim < 2 or 0 in X.shape:
        raise ValueError(f"X must have shape (..., n, d) with no empty axis, got {short(X)}")
    d = X.shape[-1]
    p = tensors["A"].shape[-2] if "A" in tensors and tensors["A"].ndim > 1 else "p"
    expected = {"A": (p, d), "B": (d, d), "Y": (X.shape[-2], p), "context": (None, d)}
    for name, (rows, columns) in expected.items():
        value = tensors.get(name)
        if value is None:
            continue
        fits = value.ndim > 1 and 0 not in value.shape
        fits = fits and rows in (None, "p", value.shape[-2]) and columns in ("p", value.shape[-1])
        if not fits:
            shape = f"(..., {'n' if rows is None else rows}, {columns})"
            raise ValueError(f"{name} must have shape {shape} to match X {tuple(X.shape)}, got {short(value)}")
    try:
        batch = torch.broadcast_shapes(*(t.shape[:-2] for t in tensors.values()))
    except RuntimeError:
        found = {name: tuple(t.shape) for name, t in tensors.items()}
        raise ValueError(f"leading axes must broadcast against each other, got shapes {found}") from None
    tensors = {name: t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:]) for name, t in tensors.items()}
    return tensors | {"batch": batch}


def _route(route, device: torch.device) -> str:
    """The route asked for, else the closed form on a CPU and the fused attention of torch on a device."""
    return ("closed" if device.type == "cpu" else "sdpa") if route is None else one_of(route, "route", ROUTES)


def _chunk(chunk, queries: int, n: int, device: torch.device) -> int:
    """Queries a block."""
    size = kernel.rows_in_block(n, device) if chunk is None else positive_int(chunk, "chunk")
    return min(size, queries)


def _fused(B, queries, context):
    """Attended tokens by torch's fused attention; ``scale = 1`` since the logits are ``x^T B x'``."""
    return scaled_dot_product_attention(queries @ B, context, context, scale=1.0)


def attention_weights(B, X, context=None) -> torch.Tensor:
    """Attention map ``softmax_j(x_i^T B x_j)``, with all its (..., n, n') entries: for looking at, at small n.

    Parameters
    ----------
    B : (..., d, d)
        Merged key-query matrix.
    X : (..., n, d)
        Query tokens.
    context : (..., n', d), optional
        Tokens attended to; default X itself, own token included.

    Returns
    -------
    (..., n, n') tensor, rows summing to one.

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric or shapes do not fit.
    """
    t = _arguments(dict(X=X, B=B, context=context))
    weights = torch.softmax(t["X"] @ t["B"] @ t["context"].mT, -1)
    return weights.reshape(*t["batch"], *weights.shape[-2:])


def attention_output(A, B, X, context=None, chunk: int | None = None, route: str | None = None) -> torch.Tensor:
    """Outputs ``f(x_i) = A sum_j softmax_j(x_i^T B x'_j) x'_j`` of the layer.

    Parameters
    ----------
    A : (..., p, d)
        Value matrix.
    B : (..., d, d)
        Merged key-query matrix.
    X : (..., n, d)
        Query tokens.
    context : (..., n', d), optional
        Tokens ``x'`` attended to; default X itself, own token included.
    chunk : int, optional
        Queries a block; memory is of order ``n' * chunk``. Default by size.
    route : {"closed", "sdpa"}, optional
        Own blocked kernel or ``scaled_dot_product_attention``; default by device.

    Returns
    -------
    (..., n, p) tensor.

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, shapes do not fit, or `chunk` is below 1.
    """
    t = _arguments(dict(X=X, A=A, B=B, context=context))
    out = _outputs(t, chunk, route)
    return out.reshape(*t["batch"], *out.shape[-2:])


def _outputs(t: dict, chunk, route) -> torch.Tensor:
    """Outputs (g, m, p) for checked tensors with one batch axis."""
    queries, context = t["X"], t["context"]
    chunk = _chunk(chunk, queries.shape[1], context.shape[1], queries.device)
    if _route(route, queries.device) == "closed":
        mixed = kernel.attended(kernel.Keys(context, chunk), t["B"], queries, chunk)
    else:
        mixed = torch.cat([_fused(t["B"], part, context) for part in queries.split(chunk, 1)], 1)
    return mixed @ t["A"].mT


def empirical_loss(A, B, X, Y, context=None, chunk: int | None = None, route: str | None = None) -> torch.Tensor:
    """Empirical loss ``1/(2n) sum_i |f(x_i) - y_i|^2`` of the attention layer.

    Parameters
    ----------
    A, B, X, context, chunk, route
        As in :func:`attention_output`; with `context` given, X may be a minibatch of queries into it.
    Y : (..., n, p)
        Targets of the queries.

    Returns
    -------
    (...) tensor, in squared units of the targets.

    Raises
    ------
    TypeError, ValueError
        As in :func:`attention_output`.
    """
    t = _arguments(dict(X=X, A=A, B=B, Y=Y, context=context))
    error = _outputs(t, chunk, route) - t["Y"]
    return (error.square().sum((-1, -2)) / (2 * error.shape[1])).reshape(t["batch"])


def empirical_gradient(A, B, X, Y, chunk: int | None = None, context=None, route: str | None = None):
    """Gradient of :func:`empirical_loss` with respect to `A` and `B`.

    With ``W = softmax(X B X^T)`` by rows, ``c = W X``, ``e = c A^T - Y``, ``g = e A / n``::

        grad_A = e^T c / n,      grad_B = X^T [W o (g X^T - (g . c) 1^T)] X

    Parameters
    ----------
    A : (..., p, d)
    B : (..., d, d)
    X : (..., n, d)
    Y : (..., n, p)
    chunk : int, optional
        Queries a block; memory is of order ``n * chunk``, never ``n^2``. Default by size.
    context : (..., n', d), optional
        Tokens attended to, if not X itself: pass the sample here and a minibatch as X, Y.
    route : {"closed", "sdpa"}, optional
        Closed form, or automatic differentiation through ``scaled_dot_product_attention``; default by device.

    Returns
    -------
    gA : (..., p, d) tensor
    gB : (..., d, d) tensor

    Raises
    ------
    TypeError, ValueError
        As in :func:`attention_output`.
    """
    return empirical_loss_and_gradient(A, B, X, Y, chunk, context, route)[1:]


def empirical_loss_and_gradient(A, B, X, Y, chunk: int | None = None, context=None, route: str | None = None):
    """:func:`empirical_loss` and :func:`empirical_gradient` in one pass: ``(loss, gA, gB)``, at the cost of the latter.

    Parameters and errors as there.
    """
    t = _arguments(dict(X=X, A=A, B=B, Y=Y, context=context))
    sample = Sample(t["context"], t["X"].shape[1], chunk, route)
    parts = sample.loss_and_gradient(t["A"], t["B"], t["X"], t["Y"])
    return tuple(part.reshape((*t["batch"], *part.shape[1:])) for part in parts)


class Sample:
    """A context (g, n, d) prepared once for many gradients at `queries` queries each, by either route.

    Problems are taken in groups, so that a large batch of samples needs no more memory than a large sample.
    """

    def __init__(self, context: torch.Tensor, queries: int, chunk: int | None = None, route: str | None = None):
        self.chunk = _chunk(chunk, queries, context.shape[1], context.device)
        self.size = max(1, GROUP // (context.shape[1] * self.chunk))
        self.closed = _route(route, context.device) == "closed"
        parts = context.split(self.size)
        self.groups = [kernel.Keys(part, self.chunk) for part in parts] if self.closed else parts

    def loss_and_gradient(self, A, B, queries, Y):
        """Loss (g,) and gradients (g, p, d), (g, d, d) for checked tensors with one batch axis."""
        single = kernel.loss_and_gradient if self.closed else _by_autograd
        if len(self.groups) == 1:
            return single(self.groups[0], A, B, queries, Y, self.chunk)
        groups = zip(self.groups, *(t.split(self.size) for t in (A, B, queries, Y)), strict=True)
        parts = [single(*operands, self.chunk) for operands in groups]
        return tuple(torch.cat(pieces) for pieces in zip(*parts, strict=True))


def _by_autograd(context, A, B, queries, Y, chunk):
    """The second route: fused attention block by block, differentiated by torch."""
    A, B = A.detach().requires_grad_(), B.detach().requires_grad_()
    loss, gA, gB = 0.0, 0.0, 0.0
    with torch.enable_grad():
        for part, target in zip(queries.split(chunk, 1), Y.split(chunk, 1), strict=True):
            error = _fused(B, part, context) @ A.mT - target
            piece = error.square().sum((-1, -2)) / (2 * queries.shape[1])
            dA, dB = torch.autograd.grad(piece.sum(), (A, B))
            loss, gA, gB = loss + piece.detach(), gA + dA, gB + dB
    return loss, gA, gB
