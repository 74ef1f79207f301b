"""The set of minimisers: spectral start, nearest point and distance, all free of LAPACK's choice of signs."""

from __future__ import annotations

import torch

from attncore.preconditioning.whitened import covariance, operands, square_roots
from attncore.validation import common, positive_int, real, short


def target(Sigma, M) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Checked `Sigma`, `M` with its two square roots: ``(M, Sigma, root, inverse root)``."""
    Sigma, M = common(Sigma=Sigma, M=M)
    Sigma = covariance(Sigma)
    if M.ndim < 2 or M.shape[-1] != Sigma.shape[-1] or 0 in M.shape:
        raise ValueError(f"M must have shape (..., p, {Sigma.shape[-1]}) to match Sigma, got {short(M)}")
    return M, Sigma, *square_roots(Sigma)


def target_svd(G: torch.Tensor, rank: int | None = None, tol: float | None = None):
    """Thin singular value decomposition ``G = P diag(S) Q^T`` with the numerically zero part of `S` set to zero.

    Parameters
    ----------
    G : (..., p, d) tensor
    rank : int, optional
        Keep only this many of the largest singular values.
    tol : float, optional
        Values up to ``tol * S[0]`` count as zero; default ``1000 max(p, d) eps``.

    Returns
    -------
    P : (..., p, k), S : (..., k), Q : (..., d, k) tensors, ``k = min(p, d)``.
    """
    P, S, Qt = torch.linalg.svd(G, full_matrices=False)
    tol = 1000 * max(G.shape[-2:]) * torch.finfo(G.dtype).eps if tol is None else tol
    keep = S > tol * S[..., :1]
    if rank is not None:
        keep = keep & (torch.arange(S.shape[-1], device=S.device) < rank)
    return P, torch.where(keep, S, 0), Qt.mT


def polar_factors(P, S, Q) -> tuple[torch.Tensor, torch.Tensor]:
    """``U_0 = P S^{1/2} Q^T`` and ``Z_0 = Q S^{1/2} Q^T``: balanced, ``U_0 Z_0^T = G``, and free of column signs."""
    half = S.sqrt().unsqueeze(-2)
    return (P * half) @ Q.mT, (Q * half) @ Q.mT


def singular_values(Sigma, M) -> torch.Tensor:
    """Singular values ``s_1 >= s_2 >= ...`` of ``G = M Sigma^{1/2}``, shape (..., min(p, d)), zeros set exactly.

    Raises ``ValueError`` for shapes that do not fit or a singular `Sigma`.
    """
    M, _, root, _ = target(Sigma, M)
    return target_svd(M @ root)[1]


def spectral_init(Sigma, M, rank: int | None = None, tol: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Polar spectral start: the minimiser with symmetric ``Z_0 = (G^T G)^{1/4}``.

    With ``G = M Sigma^{1/2} = P S Q^T``: ``Z_0 = Q S^{1/2} Q^T``, ``U_0 = P S^{1/2} Q^T``, then
    ``A_0 = U_0 Sigma^{-1/2}`` and ``B_0 = Sigma^{-1/2} Z_0 Sigma^{-1/2}``, so that ``A_0 Sigma B_0^T = M`` and the
    factors are balanced. Signs and rotations of singular vectors cancel: the map ``(Sigma, M) -> (A_0, B_0)`` is a
    function, continuous wherever the rank of M is constant.

    Parameters
    ----------
    Sigma : (..., d, d)
        Covariance, or its estimate.
    M : (..., p, d)
        Linear map, or its estimate.
    rank : int, optional
        Truncate the target to this rank first: wise when M has rank below min(p, d) and is estimated, since the
        null block of an estimate enters ``Z_0`` at order ``n^{-1/4}``.
    tol : float, optional
        Singular values up to ``tol * s_1`` count as zero.

    Returns
    -------
    A0 : (..., p, d) tensor
    B0 : (..., d, d) tensor

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, shapes do not fit, `rank` is below 1, or `Sigma` is not positive definite.

    Examples
    --------
    >>> A0, B0 = spectral_init([[1.0]], [[4.0]])
    >>> float(A0), float(B0)
    (2.0, 2.0)
    """
    M, _, root, inverse = target(Sigma, M)
    rank = None if rank is None else positive_int(rank, "rank")
    tol = None if tol is None else real(tol, "tol", at_least=0)
    U, Z = polar_factors(*target_svd(M @ root, rank, tol))
    return U @ inverse, inverse @ Z @ inverse


def _nearest(U, Z, G):
    """Nearest minimiser to ``(U, Z)`` by orthogonal Procrustes, in whitened coordinates."""
    P, S, Q = target_svd(G)
    half = S.sqrt()
    left, _, right = torch.linalg.svd(half.unsqueeze(-1) * (P.mT @ U + Q.mT @ Z), full_matrices=False)
    rotated = half.unsqueeze(-1) * (left @ right)
    return P @ rotated, Q @ rotated


def nearest_point(A, B, Sigma, M) -> tuple[torch.Tensor, torch.Tensor]:
    """The minimiser nearest to ``(A, B)`` in the ``Sigma`` metric.

    Minimisers are ``U = P S^{1/2} O``, ``Z = Q S^{1/2} O`` with orthonormal rows of O (r, d); the nearest one has
    the polar factor of ``S^{1/2} (P^T U + Q^T Z)`` for O (orthogonal Procrustes). It is unique when that r-by-d
    matrix has rank r; otherwise one of the nearest points is returned.

    Parameters
    ----------
    A : (..., p, d)
    B : (..., d, d)
    Sigma : (..., d, d)
    M : (..., p, d)

    Returns
    -------
    Two tensors of the shapes of `A` and `B`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, shapes do not fit, or `Sigma` is not positive definite.
    """
    A, B, Sigma, M = operands(A, B, Sigma, M)
    root, inverse = square_roots(Sigma)
    U, Z = _nearest(A @ root, root @ B @ root, M @ root)
    return U @ inverse, inverse @ Z @ inverse


def manifold_distance(A, B, Sigma, M) -> torch.Tensor:
    """Distance of ``(A, B)`` to the set of minimisers in the ``Sigma`` metric (not squared), shape (...).

    Computed from the nearest point, ``sqrt(|U - U*|_F^2 + |Z - Z*|_F^2)``: the closed form
    ``|U|^2 + |Z|^2 + 2 tr S - 2 |S^{1/2} (P^T U + Q^T Z)|_*`` of its square cancels below 1e-15 and could not show
    a convergence curve. Parameters and errors as in :func:`nearest_point`.
    """
    A, B, Sigma, M = operands(A, B, Sigma, M)
    root, _ = square_roots(Sigma)
    U, Z = A @ root, root @ B @ root
    nearU, nearZ = _nearest(U, Z, M @ root)
    return ((U - nearU).square().sum((-1, -2)) + (Z - nearZ).square().sum((-1, -2))).sqrt()
