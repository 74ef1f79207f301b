"""Curvature of the population loss plus regulariser: at any point, on the minimisers, near them, at saddles.

Everything is stated in the ``Sigma`` metric, that is in ``U = A Sigma^{1/2}``, ``Z = Sigma^{1/2} B Sigma^{1/2}``, for

    ``F(U, Z) = 1/2 |U Z^T - G|_F^2 + lam/4 |U^T U - Z^T Z|_F^2``,   ``G = M Sigma^{1/2}`` with singular values s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from attncore.preconditioning.population import balance_gradient, inverse, loss_gradient, natural
from attncore.preconditioning.whitened import operands, square_roots
from attncore.validation import as_tensor, positive_int, real, short


def _basis(p: int, d: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Orthonormal directions ``(H, K)``, one a coordinate: shapes (N, p, d), (N, d, d), ``N = p d + d^2``."""
    eye = torch.eye((p + d) * d, dtype=like.dtype, device=like.device).reshape(-1, p + d, d)
    return eye[:, :p], eye[:, p:]


def hessian(A, B, Sigma, M, lam) -> torch.Tensor:
    """Hessian of ``L + lam * balance`` in the ``Sigma`` metric, as a matrix over the entries of ``(U, Z)``.

    Its quadratic form along ``(H, K)``, with ``E = U Z^T - G`` and ``D = U^T U - Z^T Z``, is

        ``|H Z^T + U K^T|^2 + 2 <E, H K^T> + lam/2 |H^T U + U^T H - K^T Z - Z^T K|^2 + lam <D, H^T H - K^T K>``.

    Parameters
    ----------
    A : (..., p, d)
    B : (..., d, d)
    Sigma : (..., d, d)
    M : (..., p, d)
    lam : float
        Weight of the regulariser, at least 0.

    Returns
    -------
    (..., N, N) tensor with ``N = p d + d^2``: rows of U first, then rows of Z.

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, shapes do not fit, `lam` is negative, or `Sigma` is not positive definite.
    """
    A, B, Sigma, M = operands(A, B, Sigma, M)
    lam = real(lam, "lam", at_least=0)
    root, _ = square_roots(Sigma)
    U, Z, G = ((t @ root).unsqueeze(-3) for t in (A, root @ B, M))
    H, K = _basis(*U.shape[-2:], U)
    E, D = U @ Z.mT - G, U.mT @ U - Z.mT @ Z
    dE = H @ Z.mT + U @ K.mT
    dD = H.mT @ U - K.mT @ Z
    dD = dD + dD.mT
    # Gradient of the quadratic form: column N of the Hessian is its image of direction N.
    onU = dE @ Z + E @ K + lam * (U @ dD + H @ D)
    onZ = dE.mT @ U + E.mT @ H - lam * (Z @ dD + K @ D)
    return torch.cat([onU, onZ], -2).flatten(-2).mT


def hessian_spectrum(s, p: int, d: int, lam: float) -> torch.Tensor:
    """Eigenvalues of the Hessian at every minimiser, in closed form and ascending.

    For ``r`` positive singular values: ``s_i + s_j`` for all ordered pairs (i, j); ``2 lam (s_i + s_j)`` for
    ``i <= j``; ``s_j`` with multiplicity ``(p - r) + (d - r)``; ``2 lam s_i`` with multiplicity ``d - r``; and zero.
    The zeros number the dimension ``r d - r (r + 1)/2`` of the set of minimisers, if ``lam > 0``, plus
    ``(d - r)(p + d - 2 r)``: with ``r < d`` the loss is flat to second order off the minimisers too.

    Parameters
    ----------
    s : (..., k)
        Singular values of ``G``, nonnegative, at most min(p, d) of them; zeros count towards the rank defect.
    p, d : int
        Shape of G.
    lam : float
        Weight of the regulariser, at least 0.

    Returns
    -------
    (..., N) tensor, ``N = p d + d^2``.

    Raises
    ------
    TypeError, ValueError
        If `s` is negative or too long, or a size is not a positive integer.
    """
    s = checked_spectrum(s)
    p, d, lam = positive_int(p, "p"), positive_int(d, "d"), real(lam, "lam", at_least=0)
    if s.shape[-1] > min(p, d):
        raise ValueError(f"s must hold at most min(p, d) = {min(p, d)} singular values, got {short(s)}")
    s = torch.cat([s, s.new_zeros(*s.shape[:-1], d - s.shape[-1])], -1)
    # With zeros padded to d every formula above is one of pairs: a zero partner leaves s_j alone, or nothing.
    pairs = s.unsqueeze(-1) + s.unsqueeze(-2)
    upper = torch.ones(d, d, dtype=torch.bool, device=s.device).triu()
    rows = pairs[..., :p, :] if p <= d else torch.cat([pairs, s.unsqueeze(-2).expand(*s.shape[:-1], p - d, d)], -2)
    factor, count = rows.flatten(-2), p * d + d * d
    found = torch.cat([factor, 2 * lam * pairs[..., upper]], -1)
    found = torch.cat([found, s.new_zeros(*s.shape[:-1], count - found.shape[-1])], -1)
    return found.sort(-1).values


def checked_spectrum(s) -> torch.Tensor:
    """Checked nonnegative singular values with at least one axis."""
    s = as_tensor(s, "s")
    if s.ndim == 0 or s.shape[-1] == 0:
        raise ValueError(f"s must hold at least one singular value on its last axis, got {short(s)}")
    if bool((s < 0).any()):
        raise ValueError(f"s must be nonnegative, got a singular value of {float(s.min()):.3g}")
    return s


@dataclass(frozen=True)
class LocalRate:
    """Exact local rate of preconditioned descent at the minimisers.

    Attributes
    ----------
    step : float
        Best fixed step ``2 / (smallest + largest)`` nonzero curvature.
    mu : float
        Contraction factor of the *distance* a step; the loss contracts by ``mu^2``. 1 where it is sublinear.
    smallest, largest : float
        Curvature of the loss across the set of minimisers; `smallest` is 0 if it is flat to second order there.
    linear : bool
        Whether the distance converges geometrically: ``r = d`` and ``lam > 0``.
    """

    step: float
    mu: float
    smallest: float
    largest: float
    linear: bool


def local_rate(s, p: int, d: int, lam: float = 0.5) -> LocalRate:
    """Best fixed step of preconditioned descent near the minimisers, and its exact contraction factor.

    ``mu = (largest - smallest) / (largest + smallest)`` of the nonzero Hessian eigenvalues. With ``lam = 1/2`` this is
    ``(s_1 - s_d)/(s_1 + s_d)`` for ``p = d = r`` and ``(2 s_1 - s_d)/(2 s_1 + s_d)`` for ``p > d = r``. With
    ``r < d`` some directions across the minimisers have no curvature and the distance falls as a power of the steps.

    Parameters
    ----------
    s : (k,)
        Singular values of ``G = M Sigma^{1/2}``.
    p, d : int
    lam : float

    Returns
    -------
    LocalRate

    Raises
    ------
    TypeError, ValueError
        As in :func:`hessian_spectrum`, or if all of `s` is zero.
    """
    s = checked_spectrum(s)
    if s.ndim != 1 or float(s.max()) == 0:
        raise ValueError(f"s must be one vector of singular values, not all zero, got {short(s)}")
    eigenvalues = hessian_spectrum(s, p, d, lam)
    linear = int((s > 0).sum()) == d and lam > 0
    largest = float(eigenvalues[-1])
    smallest = float(eigenvalues[eigenvalues > 0][0]) if linear else 0.0
    return LocalRate(2 / (largest + smallest), (largest - smallest) / (largest + smallest), smallest, largest, linear)


def one_point_convexity(s, p: int, d: int, lam: float, distance: float) -> float:
    """Proved constant ``alpha`` with ``<grad F(w), w - w*> >= alpha |w - w*|^2`` at this distance from the minimisers.

    For w* the nearest minimiser, ``m`` the smallest curvature across the minimisers (:func:`local_rate`) and
    ``nu = sqrt(max(1, 2 lam))``: ``alpha = (sqrt(m) - nu distance/2) (sqrt(m) - nu distance)``, valid while the second
    factor is nonnegative. For ``lam = 1/2`` and ``p = d = r`` no larger constant is true: it equals
    ``s_d (1 - t)(2 - t)``, ``t = distance / sqrt(2 s_d)``, and is attained where the smallest pair of singular vectors
    shrinks to nothing; at ``t = 1`` stands the saddle.

    Parameters
    ----------
    s : (k,)
        Singular values of G.
    p, d : int
    lam : float
        At least 0; with 0 the constant is 0, since without the regulariser the loss is flat along a noncompact set.
    distance : float
        Distance in the ``Sigma`` metric, at least 0.

    Returns
    -------
    float; 0 where nothing is proved (``r < d``, ``lam = 0``, or beyond the radius ``sqrt(m)/nu``).

    Raises
    ------
    TypeError, ValueError
        As in :func:`local_rate`, or if `distance` is negative.
    """
    distance = real(distance, "distance", at_least=0)
    m, nu = math.sqrt(local_rate(s, p, d, lam).smallest), math.sqrt(max(1.0, 2 * lam))
    return (m - nu * distance / 2) * (m - nu * distance) if nu * distance < m else 0.0


def one_point_smoothness(s, lam: float, distance: float) -> float:
    """Proved constant ``beta`` with ``|grad F(w)| <= beta |w - w*|`` at this distance from the minimisers.

    ``beta = c (sqrt(s_1) + distance) (sqrt(s_1) + distance / sqrt(8))`` with ``c = 2 max(1, 2 lam)``: the largest
    curvature ``2 s_1`` at distance 0 if ``lam <= 1/2``.

    Parameters
    ----------
    s : (k,)
        Singular values of G.
    lam : float
        At least 0.
    distance : float
        Distance in the ``Sigma`` metric, at least 0.

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        If `s` is not one vector of nonnegative numbers, or `lam` or `distance` is negative.
    """
    s, lam = checked_spectrum(s), real(lam, "lam", at_least=0)
    distance = real(distance, "distance", at_least=0)
    if s.ndim != 1:
        raise ValueError(f"s must be one vector of singular values, got {short(s)}")
    root = math.sqrt(float(s.max()))
    return 2 * max(1.0, 2 * lam) * (root + distance) * (root + distance / math.sqrt(8))


def one_point_ratio(A, B, Sigma, M, lam, near) -> tuple[torch.Tensor, torch.Tensor]:
    """Measured one-point convexity and smoothness of a point against a minimiser ``near = (A*, B*)``.

    Returns
    -------
    convexity : (...) tensor
        ``<grad F(w), w - w*> / |w - w*|^2`` in the ``Sigma`` metric.
    smoothness : (...) tensor
        ``|grad F(w)| / |w - w*|`` in the ``Sigma`` metric.

    Shapes and errors as in :func:`hessian`; both are nan at ``w = w*``.
    """
    A, B, Sigma, M = operands(A, B, Sigma, M)
    nearA, nearB = near
    nearA, nearB, _ = operands(nearA, nearB, Sigma)
    lam = real(lam, "lam", at_least=0)
    (gA, gB), (rA, rB) = loss_gradient(A, B, Sigma, M), balance_gradient(A, B, Sigma)
    gA, gB = gA + lam * rA, gB + lam * rB
    dA, dB = A - nearA, B - nearB
    size = (dA @ Sigma * dA).sum((-1, -2)) + (Sigma @ dB @ Sigma * dB).sum((-1, -2))
    nA, nB = natural(gA, gB, inverse(Sigma))
    inner = (gA * dA).sum((-1, -2)) + (gB * dB).sum((-1, -2))
    slope = (gA * nA).sum((-1, -2)) + (gB * nB).sum((-1, -2))
    return inner / size, (slope / size).sqrt()
