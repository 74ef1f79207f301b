"""Checked arguments, and the change of variables in which the population loss is a matrix factorisation."""

from __future__ import annotations

import torch

from attncore.validation import common, short


def covariance(Sigma: torch.Tensor, name: str = "Sigma") -> torch.Tensor:
    """Return `Sigma`, symmetrised, after checking that it is a (batch of) positive definite matrices.

    Raises
    ------
    ValueError
        If it is not square or not symmetric, or its smallest eigenvalue is not above ``d eps`` times the largest.
    """
    if Sigma.ndim < 2 or Sigma.shape[-1] != Sigma.shape[-2] or 0 in Sigma.shape:
        raise ValueError(f"{name} must have shape (..., d, d), got {short(Sigma)}")
    scale = Sigma.abs().amax((-1, -2), keepdim=True)
    eps = torch.finfo(Sigma.dtype).eps
    skew = (Sigma - Sigma.mT).abs()
    if bool((skew > 64 * eps * scale).any()):
        raise ValueError(f"{name} must be symmetric, got |{name} - {name}^T| up to {float(skew.max()):.3g}")
    Sigma = (Sigma + Sigma.mT) / 2
    values = torch.linalg.eigvalsh(Sigma)
    bad = ~(values[..., 0] > Sigma.shape[-1] * eps * values[..., -1])
    if bool(bad.any()):
        low, high = float(values[..., 0][bad][0]), float(values[..., -1][bad][0])
        raise ValueError(
            f"{name} must be positive definite, got eigenvalues from {low:.3g} to {high:.3g}: "
            "the loss is flat along its null space; drop the dependent coordinates or add a ridge"
        )
    return Sigma


def operands(A, B, Sigma, M=None) -> list[torch.Tensor]:
    """Check value `A` (..., p, d), key-query `B` (..., d, d), covariance `Sigma` (..., d, d), map `M` (..., p, d).

    Returns the tensors with one dtype; leading axes may differ as long as they broadcast.
    """
    named = dict(A=A, B=B, Sigma=Sigma) if M is None else dict(A=A, B=B, Sigma=Sigma, M=M)
    tensors = dict(zip(named, common(**named), strict=True))
    tensors["Sigma"] = covariance(tensors["Sigma"])
    d = tensors["Sigma"].shape[-1]
    shapes = {"A": ("p", d), "B": (d, d), "M": (tensors["A"].shape[-2] if tensors["A"].ndim > 1 else "p", d)}
    for name, expected in shapes.items():
        if name in tensors:
            _shape(tensors[name], name, expected)
    try:
        torch.broadcast_shapes(*(t.shape[:-2] for t in tensors.values()))
    except RuntimeError:
        found = {name: tuple(t.shape) for name, t in tensors.items()}
        raise ValueError(f"leading axes must broadcast against each other, got shapes {found}") from None
    return list(tensors.values())


def _shape(tensor: torch.Tensor, name: str, expected) -> None:
    """Refuse a matrix whose last two axes are not `expected`; "p" stands for any positive size."""
    fits = tensor.ndim >= 2 and 0 not in tensor.shape
    fits = fits and all(want in ("p", size) for size, want in zip(tensor.shape[-2:], expected, strict=True))
    if not fits:
        raise ValueError(f"{name} must have shape (..., {expected[0]}, {expected[1]}), got {short(tensor)}")


def square_roots(Sigma: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``Sigma^{1/2}`` and ``Sigma^{-1/2}`` of positive definite matrices (..., d, d)."""
    values, vectors = torch.linalg.eigh(Sigma)
    root = values.sqrt()
    scaled = vectors * root.unsqueeze(-2)
    return scaled @ vectors.mT, (vectors / root.unsqueeze(-2)) @ vectors.mT


def whiten(A, B, Sigma) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``U = A Sigma^{1/2}`` and ``Z = Sigma^{1/2} B Sigma^{1/2}``.

    In these coordinates the excess population loss is ``1/2 |U Z^T - G|_F^2`` with ``G = M Sigma^{1/2}``
    (contents 2 of arXiv 2603.01514 as reconstructed in the chapter).

    Parameters
    ----------
    A : (..., p, d)
        Value matrix.
    B : (..., d, d)
        Merged key-query matrix; the logits are ``x_i^T B x_j``.
    Sigma : (..., d, d)
        Token covariance, positive definite.

    Returns
    -------
    U : (..., p, d) tensor
    Z : (..., d, d) tensor

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, shapes do not fit, or `Sigma` is not positive definite.
    """
    A, B, Sigma = operands(A, B, Sigma)
    root, _ = square_roots(Sigma)
    return A @ root, root @ B @ root


def unwhiten(U, Z, Sigma) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``A = U Sigma^{-1/2}`` and ``B = Sigma^{-1/2} Z Sigma^{-1/2}``: the inverse of :func:`whiten`.

    Shapes as in :func:`whiten`. Raises ``ValueError`` for shapes that do not fit or a singular `Sigma`.
    """
    U, Z, Sigma = operands(U, Z, Sigma)
    _, inverse = square_roots(Sigma)
    return U @ inverse, inverse @ Z @ inverse
