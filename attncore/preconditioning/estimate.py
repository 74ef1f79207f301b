"""What the algorithm needs to know of the data before its first step: covariance, linear map, scale."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.special import betaincc

from attncore.preconditioning.spectral import target_svd
from attncore.preconditioning.whitened import square_roots
from attncore.validation import common, real, short


@dataclass(frozen=True)
class Estimate:
    """Moments of a sample.

    Attributes
    ----------
    Sigma : (..., d, d)
        ``X^T X / n``, about the mean with an intercept, plus the ridge.
    M : (..., p, d)
        Least squares (ridge) regression of the targets on the tokens.
    tau : (...)
        Scale the targets are divided by.
    top : (...)
        Largest singular value of the scaled target ``M Sigma^{1/2} / tau``.
    x_mean, y_mean : (..., 1, d), (..., 1, p)
        What was subtracted; zero without an intercept.
    """

    Sigma: torch.Tensor
    M: torch.Tensor
    tau: torch.Tensor
    top: torch.Tensor
    x_mean: torch.Tensor
    y_mean: torch.Tensor


def renormalisation(S: torch.Tensor) -> torch.Tensor:
    """``tau = max(sum_i s_i, 4 s_1)``, shape (...): after division by it ``s_1 <= 1/4`` and ``sum_i s_i <= 1``.

    Bounded logits are what keeps the noise of attention over n tokens at order 1/n: see `theory.attention_mse`.
    """
    return torch.maximum(S.sum(-1), 4 * S[..., 0])


def estimate(X, Y, ridge: float = 0.0, intercept: bool = False, tau: float | None = None) -> Estimate:
    """Estimate covariance, linear map and scale from a sample: all that `fit` knows before its first step.

    Together with `spectral_init` this is the start of the algorithm at a cost linear in n.

    Parameters
    ----------
    X : (..., n, d)
        Tokens.
    Y : (..., n, p)
        Targets.
    ridge : float
        Relative: ``ridge * tr(Sigma)/d`` is added to the diagonal of the covariance, in the regression too.
    intercept : bool
        Subtract the means first.
    tau : float, optional
        Scale of the targets; default ``max(sum s_i, 4 s_1)`` over the singular values of ``M Sigma^{1/2}``.

    Returns
    -------
    Estimate

    Raises
    ------
    TypeError, ValueError
        For bad arguments; if tokens are clearly not centred and no intercept was asked for; if the covariance is
        singular to rounding and there is no ridge; if the targets are zero.
    """
    X, Y, batch = sample_tensors(X, Y)
    ridge = real(ridge, "ridge", at_least=0)
    if not isinstance(intercept, bool):
        raise TypeError(f"intercept must be True or False, got {short(intercept)}")
    tau = None if tau is None else real(tau, "tau", above=0)
    return reshaped(estimate_flat(X, Y, ridge, intercept, tau), batch)


def reshaped(moments: Estimate, batch) -> Estimate:
    """The same moments with `batch` for leading axes."""
    return Estimate(*(part.reshape((*batch, *part.shape[1:])) for part in vars(moments).values()))


def sample_tensors(X, Y):
    """Checked tokens (g, n, d) and targets (g, n, p) with one batch axis, and the user's batch shape."""
    X, Y = common(X=X, Y=Y)
    for name, value in (("X", X), ("Y", Y)):
        if value.ndim < 2 or 0 in value.shape:
            size = "d" if name == "X" else "p"
            raise ValueError(f"{name} must have shape (..., n, {size}) with no empty axis, got {short(value)}")
    if X.shape[-2] != Y.shape[-2]:
        raise ValueError(f"Y must have one row a token of X {tuple(X.shape)}, got {short(Y)}")
    try:
        batch = torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2])
    except RuntimeError:
        raise ValueError(f"leading axes of Y must broadcast against X {tuple(X.shape)}, got {short(Y)}") from None
    return *(t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:]) for t in (X, Y)), batch


def estimate_flat(X: torch.Tensor, Y: torch.Tensor, ridge: float, intercept: bool, tau: float | None) -> Estimate:
    """:func:`estimate` for checked arguments and one batch axis."""
    x_mean, y_mean = X.mean(1, keepdim=True) * intercept, Y.mean(1, keepdim=True) * intercept
    X, Y = X - x_mean, Y - y_mean
    n, d = X.shape[1:]
    scatter = X.mT @ X / n
    extra = ridge * scatter.diagonal(dim1=-1, dim2=-2).mean(-1)
    eye = torch.eye(d, dtype=X.dtype, device=X.device)
    Sigma = scatter + extra[:, None, None] * eye
    _refuse_singular(Sigma, n, d, ridge)
    if not intercept:
        _refuse_offset(X, Sigma)
    # Least squares on the tokens themselves: forming normal equations would square the condition number.
    rows = torch.cat([X, (n * extra).sqrt()[:, None, None] * eye], 1)
    M = torch.linalg.lstsq(rows, torch.cat([Y, Y.new_zeros(len(Y), d, Y.shape[-1])], 1)).solution.mT
    S = target_svd(M @ square_roots(Sigma)[0])[1]
    if bool((S[:, 0] <= 0).any()):
        raise ValueError("Y must not be zero: there is nothing to learn, and no scale to learn it at")
    scale = renormalisation(S) if tau is None else torch.full_like(S[:, 0], tau)
    return Estimate(Sigma, M, scale, S[:, 0] / scale, x_mean, y_mean)


def _refuse_singular(Sigma: torch.Tensor, n: int, d: int, ridge: float) -> None:
    """Nearly singular covariances, by the smallest eigenvalue against rounding in the sum that made it."""
    values = torch.linalg.eigvalsh(Sigma)
    ratio = values[:, 0] / values[:, -1]
    bad = ~(ratio > 16 * d * torch.finfo(Sigma.dtype).eps)
    if bool(bad.any()):
        index = int(bad.nonzero()[0])
        raise ValueError(
            f"X must have a covariance of full rank, got eigenvalue ratio {float(ratio[index]):.2g} with n = {n} "
            f"tokens in d = {d} dimensions (problem {index}, ridge = {ridge:g}): drop dependent or constant columns, "
            "take n >= d, or pass ridge=1e-6 (relative to the mean eigenvalue)"
        )


def _refuse_offset(X: torch.Tensor, Sigma: torch.Tensor) -> None:
    """Tokens whose mean is beyond doubt not zero: attention would add ``A mean`` to every output.

    ``u = m^T Sigma^{-1} m`` is the share of the tokens' second moment that the mean m carries; for centred Gaussian
    tokens it is Beta(d/2, (n-d)/2) exactly.
    """
    n, d = X.shape[1:]
    mean = X.mean(1).unsqueeze(-1)
    share = (mean * torch.linalg.solve(Sigma, mean)).sum((-1, -2)).cpu()
    if n <= d:
        return
    surprise = torch.from_numpy(betaincc(d / 2, (n - d) / 2, share.double().clamp(0, 1).numpy()))
    bad = (surprise < 1e-9) & (share > 0.01)
    if bool(bad.any()):
        index = int(bad.nonzero()[0])
        raise ValueError(
            f"X must be centred, got tokens whose mean carries {float(share[index]):.0%} of their second moment "
            f"(problem {index}): pass intercept=True, or subtract the mean yourself"
        )
