"""Closed forms that the experiments of Part III are held against: noise of attention, risk of the start, saddles."""

from __future__ import annotations

import math

import torch

from attncore.preconditioning.landscape import checked_spectrum
from attncore.preconditioning.spectral import polar_factors, target, target_svd
from attncore.preconditioning.whitened import operands, square_roots
from attncore.validation import as_tensor, positive_int, real, short


def attention_mse(A, B, Sigma, x) -> torch.Tensor:
    """Leading constant of the error of attention over n independent tokens at a fixed query.

    ``n E|f_n(x) - A Sigma B^T x|^2 -> e^{r^2} (|U|_F^2 + |A Sigma B^T x|^2)`` with ``r^2 = x^T B Sigma B^T x`` the
    squared norm of the whitened tilt and ``|U|_F^2 = tr(A Sigma A^T)``: the variance of self-normalised importance
    sampling.

    Parameters
    ----------
    A : (..., p, d)
    B : (..., d, d)
    Sigma : (..., d, d)
    x : (..., d)
        Query, not among the tokens attended to.

    Returns
    -------
    (...) tensor.

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, shapes do not fit, or `Sigma` is not positive definite.
    """
    A, B, Sigma = operands(A, B, Sigma)
    x = as_tensor(x, "x", dtype=A.dtype)
    if x.ndim < 1 or x.shape[-1] != A.shape[-1]:
        raise ValueError(f"x must have shape (..., {A.shape[-1]}), got {short(x)}")
    tilt = B.mT @ x.unsqueeze(-1)
    shifted = Sigma @ tilt
    size = (A @ Sigma * A).sum((-1, -2))
    return (tilt * shifted).sum((-1, -2)).exp() * (size + (A @ shifted).square().sum((-1, -2)))


def mean_attention_mse(A, B, Sigma) -> torch.Tensor:
    """:func:`attention_mse` averaged over queries ``x ~ N(0, Sigma)``: infinite from ``|Z|_2^2 = 1/2`` on.

    With ``C = Z Z^T``: ``det(I - 2 C)^{-1/2} (|U|_F^2 + tr(Z U^T U Z^T (I - 2 C)^{-1}))``. On the set of minimisers
    ``|Z|_2^2 = s_1``: logits must stay bounded, which is why targets are renormalised. Shapes and errors as above;
    returns (...).
    """
    A, B, Sigma = operands(A, B, Sigma)
    root, _ = square_roots(Sigma)
    U, Z = A @ root, root @ B @ root
    values, vectors = torch.linalg.eigh(Z @ Z.mT)
    room = (1 - 2 * values).clamp_min(0)
    energy = (U @ Z.mT @ vectors).square().sum(-2)
    total = (U.square().sum((-1, -2)) + (energy / room).sum(-1)) / room.prod(-1).sqrt()
    return torch.where(room[..., 0] * room[..., -1] > 0, total, torch.inf)


def mse_exponent(s1: float) -> float:
    """Heuristic exponent ``min(1, (sqrt(1 + 4/s_1) - 1)/2)`` of the true mean square error in n, on the minimisers.

    Beyond ``s_1 = 1/2`` the mean is ruled by queries whose tilt no sample of n tokens can follow. Not proved.
    Raises ``ValueError`` unless ``s1 > 0``.
    """
    return min(1.0, (math.sqrt(1 + 4 / real(s1, "s1", above=0)) - 1) / 2)


def start_risk(s, p: int, d: int, noise: float = 0.0) -> float:
    """Limit of ``n * excess`` population loss of the spectral start: ``((tr S)^2 + tr S^2)/2 + p d noise^2/2``.

    Parameters
    ----------
    s : (k,)
        Singular values of ``G = M Sigma^{1/2}``.
    p, d : int
    noise : float
        Standard deviation of the target noise.

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        If `s` is negative, a size is not a positive integer, or `noise` is negative.
    """
    s = checked_spectrum(s)
    p, d, noise = positive_int(p, "p"), positive_int(d, "d"), real(noise, "noise", at_least=0)
    return float(s.sum() ** 2 + s.square().sum()) / 2 + p * d * noise**2 / 2


def copy_solution(Sigma, M, beta: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The trap ``A = M``, ``B = beta Sigma^{-1}``: each token of the sample attends to itself as beta grows.

    In high dimension its empirical loss is far below that of the minimisers, though over infinitely many tokens it is
    the map ``beta M``, with excess ``1/2 (beta - 1)^2 |G|_F^2``. At ``beta = 1`` that is zero, yet the factors are not
    balanced and ``|Z|_2 = 1``: the attention noise on new queries has no finite leading constant.

    Parameters
    ----------
    Sigma : (..., d, d)
        Covariance, or its estimate.
    M : (..., p, d)
        Linear map, or its estimate.
    beta : float

    Returns
    -------
    A : (..., p, d) tensor
    B : (..., d, d) tensor

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, shapes do not fit, or `Sigma` is not positive definite.
    """
    M, _, _, inverted = target(Sigma, M)
    return M, real(beta, "beta") * inverted @ inverted


def critical_point(Sigma, M, keep) -> tuple[torch.Tensor, torch.Tensor]:
    """A balanced critical point of the regularised population loss that fits only the singular values in `keep`.

    Up to the rotation ``(U, Z) -> (U O, Z O)``, and a choice of basis where singular values repeat, these are all
    the critical points there are; the ones that leave out a positive singular value are strict saddles.

    Parameters
    ----------
    Sigma : (..., d, d)
    M : (..., p, d)
    keep : sequence of int
        Numbers of the singular values kept, from 0; may be empty (the origin).

    Returns
    -------
    A : (..., p, d) tensor
    B : (..., d, d) tensor

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, shapes do not fit, or an index is out of range.
    """
    M, _, root, inverted = target(Sigma, M)
    P, S, Q = target_svd(M @ root)
    kept = torch.zeros_like(S)
    for index in keep:
        if positive_int(index, "keep", minimum=0) >= S.shape[-1]:
            raise ValueError(f"keep must hold numbers below {S.shape[-1]}, got {index}")
        kept[..., index] = 1
    U, Z = polar_factors(P, S * kept, Q)
    return U @ inverted, inverted @ Z @ inverted


def escape_direction(A, B, Sigma, M) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Direction of negative curvature at a critical point that does not fit M: ``(dA, dB, curvature)``.

    With ``E = U Z^T - G``, its top singular pair ``(e_l, e_r)`` and a unit w with ``U w = Z w = 0``, the direction
    ``(e_l w^T, -e_r w^T) / sqrt(2)`` has curvature ``-|E|_2`` in the ``Sigma`` metric.

    Parameters
    ----------
    A, B, Sigma, M
        Shapes as in `population_loss`; ``(A, B)`` should be critical, which is not checked.

    Returns
    -------
    dA : (..., p, d), dB : (..., d, d)
        Of unit norm in the metric.
    curvature : (...)
        ``-|E|_2``.

    Raises
    ------
    TypeError, ValueError
        As in `population_loss`.
    """
    A, B, Sigma, M = operands(A, B, Sigma, M)
    root, inverted = square_roots(Sigma)
    U, Z, G = A @ root, root @ B @ root, M @ root
    left, size, right = torch.linalg.svd(U @ Z.mT - G, full_matrices=False)
    _, vectors = torch.linalg.eigh(U.mT @ U + Z.mT @ Z)
    w = vectors[..., :1].mT / math.sqrt(2)
    dU, dZ = left[..., :1] @ w, -right[..., :1, :].mT @ w
    return dU @ inverted, inverted @ dZ @ inverted, -size[..., 0]
