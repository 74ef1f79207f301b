"""The loss over infinitely many Gaussian tokens, its balancing regulariser, gradients and the preconditioner.

Tokens ``x ~ N(0, Sigma)``, targets ``y = M x + noise``. By the Gaussian tilt
``E[x e^{b^T x}] / E[e^{b^T x}] = Sigma b`` the attention layer ``f(x) = A E[x' e^{x^T B x'}] / E[e^{x^T B x'}]``
equals ``A Sigma B^T x``, so everything here is a polynomial in `A` and `B`. The model and the idea of the metric are
those of arXiv 2603.01514; the formulas are derived from first principles in the chapter on preconditioning.
"""

from __future__ import annotations

import torch

from attncore.preconditioning.whitened import operands, square_roots
from attncore.validation import real


def _square(matrix: torch.Tensor) -> torch.Tensor:
    """Squared Frobenius norm over the last two axes."""
    return matrix.square().sum((-1, -2))


def population_loss(A, B, Sigma, M) -> torch.Tensor:
    """Excess population loss ``1/2 |(A Sigma B^T - M) Sigma^{1/2}|_F^2``, without the noise floor ``p sigma^2 / 2``.

    Parameters
    ----------
    A : (..., p, d)
        Value matrix.
    B : (..., d, d)
        Merged key-query matrix; the logits are ``x_i^T B x_j``.
    Sigma : (..., d, d)
        Token covariance, positive definite.
    M : (..., p, d)
        The linear map to learn.

    Returns
    -------
    (...) tensor, in squared units of the targets.

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, shapes do not fit, or `Sigma` is not positive definite.

    Examples
    --------
    >>> float(population_loss([[2.0]], [[1.0]], [[1.0]], [[1.0]]))
    0.5
    """
    A, B, Sigma, M = operands(A, B, Sigma, M)
    return excess(A, B, Sigma, M)


def excess(A, B, Sigma, M) -> torch.Tensor:
    """:func:`population_loss` for tensors already checked."""
    error = A @ Sigma @ B.mT - M
    return _square(error @ torch.linalg.cholesky(Sigma)) / 2


def balance(A, B, Sigma) -> torch.Tensor:
    """Imbalance ``1/4 |U^T U - Z^T Z|_F^2`` of the factors ``U = A Sigma^{1/2}``, ``Z = Sigma^{1/2} B Sigma^{1/2}``.

    It equals ``1/4 |C^T (A^T A - B^T Sigma B) C|_F^2`` for the Cholesky factor C of `Sigma`, so no matrix square root
    is taken. Shapes as in :func:`population_loss`; returns (...). Raises ``ValueError`` for shapes that do not fit.
    """
    A, B, Sigma = operands(A, B, Sigma)
    return imbalance(A, B, Sigma)


def imbalance(A, B, Sigma) -> torch.Tensor:
    """:func:`balance` for tensors already checked."""
    factor = torch.linalg.cholesky(Sigma)
    return _square(factor.mT @ (A.mT @ A - B.mT @ Sigma @ B) @ factor) / 4


def loss_gradient(A, B, Sigma, M) -> tuple[torch.Tensor, torch.Tensor]:
    """``(E B Sigma, E^T A Sigma)`` with ``E = (A Sigma B^T - M) Sigma``, for tensors already checked."""
    E = (A @ Sigma @ B.mT - M) @ Sigma
    return E @ B @ Sigma, E.mT @ A @ Sigma


def balance_gradient(A, B, Sigma) -> tuple[torch.Tensor, torch.Tensor]:
    """``(A Sigma D Sigma, -Sigma B Sigma D Sigma)`` with ``D = A^T A - B^T Sigma B``, for tensors already checked."""
    tail = Sigma @ (A.mT @ A - B.mT @ Sigma @ B) @ Sigma
    return A @ tail, -Sigma @ B @ tail


def population_gradient(A, B, Sigma, M, lam) -> tuple[torch.Tensor, torch.Tensor]:
    """Euclidean gradient of ``population_loss + lam * balance`` with respect to `A` and `B`.

    With ``E = (A Sigma B^T - M) Sigma`` and ``D = A^T A - B^T Sigma B``::

        grad_A = E B Sigma     + lam A Sigma D Sigma
        grad_B = E^T A Sigma   - lam Sigma B Sigma D Sigma

    Parameters
    ----------
    A, B, Sigma, M
        As in :func:`population_loss`.
    lam : float
        Weight of the regulariser, at least 0.

    Returns
    -------
    gA : (..., p, d) tensor
    gB : (..., d, d) tensor

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, shapes do not fit, `lam` is negative, or `Sigma` is not positive definite.
    """
    A, B, Sigma, M = operands(A, B, Sigma, M)
    lam = real(lam, "lam", at_least=0)
    gA, gB = loss_gradient(A, B, Sigma, M)
    rA, rB = balance_gradient(A, B, Sigma)
    return gA + lam * rA, gB + lam * rB


def precondition(gA, gB, Sigma) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn a Euclidean gradient into that of the ``Sigma`` metric: ``(gA Sigma^{-1}, Sigma^{-1} gB Sigma^{-1})``.

    The metric is ``<(A, B), (A', B')>_Sigma = tr(A Sigma A'^T) + tr(Sigma B Sigma B'^T)``. A step along the result is
    a step of plain gradient descent in ``U = A Sigma^{1/2}``, ``Z = Sigma^{1/2} B Sigma^{1/2}``, where the condition
    number of `Sigma` no longer appears.

    Parameters
    ----------
    gA : (..., p, d)
    gB : (..., d, d)
    Sigma : (..., d, d)
        Positive definite.

    Returns
    -------
    Two tensors of the shapes of `gA` and `gB`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not numeric, shapes do not fit, or `Sigma` is not positive definite.
    """
    gA, gB, Sigma = operands(gA, gB, Sigma)
    return natural(gA, gB, inverse(Sigma))


def inverse(Sigma) -> torch.Tensor:
    """``Sigma^{-1}`` of positive definite matrices already checked."""
    return torch.cholesky_inverse(torch.linalg.cholesky(Sigma))


def natural(gA, gB, inverted) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`precondition` with ``Sigma^{-1}`` at hand."""
    return gA @ inverted, inverted @ gB @ inverted


def metric_norm(A, B, Sigma) -> torch.Tensor:
    """Norm ``sqrt(tr(A Sigma A^T) + tr(Sigma B Sigma B^T)) = sqrt(|U|_F^2 + |Z|_F^2)``, shape (...).

    Shapes as in :func:`population_loss`. Raises ``ValueError`` for shapes that do not fit or a singular `Sigma`.
    """
    A, B, Sigma = operands(A, B, Sigma)
    root, _ = square_roots(Sigma)
    return (_square(A @ root) + _square(root @ B @ root)).sqrt()


def sharpness(A, B, root, top) -> torch.Tensor:
    """The scale ``max(s_1, |U|_2^2, |Z|_2^2)`` that the scale-free step ``eta = c / scale`` divides by.

    `root` is ``Sigma^{1/2}`` and `top` the largest singular value of the target; tensors already checked.
    """
    U, Z = A @ root, root @ B @ root
    squares = torch.linalg.eigvalsh(torch.stack([U.mT @ U, Z.mT @ Z]))[..., -1]
    return torch.maximum(squares.amax(0), top)
