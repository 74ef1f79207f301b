"""Gaussian tokens with linear targets: the data of Part III, with its spectrum and its conditioning chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from attncore.data import batch_shape, problem_generators
from attncore.validation import as_tensor, placement, positive_int, real, short

STREAM = 70


@dataclass(frozen=True)
class LinearTask:
    """Tokens, targets and the truth behind them.

    Attributes
    ----------
    X : (..., n, d)
        Tokens ``x ~ N(0, Sigma)``.
    Y : (..., n, p)
        Targets ``M x + noise * N(0, I)``.
    Sigma : (..., d, d)
    M : (..., p, d)
    noise : float
        Standard deviation of the noise in each target; the noise floor of the loss is ``p noise^2 / 2``.
    """

    X: torch.Tensor
    Y: torch.Tensor
    Sigma: torch.Tensor
    M: torch.Tensor
    noise: float


def _rotation(rng, d: int) -> np.ndarray:
    """Haar-distributed orthogonal matrix."""
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    return q * np.sign(np.diag(r))


def gaussian_task(n: int, s, d: int | None = None, p: int | None = None, kappa: float = 1.0, noise: float = 0.0,
                  seed: int = 0, batch=(), dtype=None, device=None) -> LinearTask:
    """Draw a linear task whose target ``G = M Sigma^{1/2}`` has prescribed singular values.

    Parameters
    ----------
    n : int
        Tokens.
    s : sequence of float
        Nonzero singular values of G, in any order; they set the difficulty, whatever `kappa` is.
    d, p : int, optional
        Dimensions of tokens and targets; default both ``len(s)``.
    kappa : float
        Condition number of Sigma, at least 1: eigenvalues spaced geometrically from 1 down to ``1/kappa``.
    noise : float
        Standard deviation of the target noise.
    seed : int
        Problem b depends on (seed, b) only. Rotations, whitened tokens and noise do not depend on `kappa`, `s` or
        `noise`, so tasks that differ in these are paired.
    batch : int or tuple of int
    dtype, device
        Of the tensors (default float64, CPU).

    Returns
    -------
    LinearTask

    Raises
    ------
    TypeError, ValueError
        For sizes below 1, more singular values than min(p, d), a negative one, ``kappa < 1`` or negative noise.
    """
    s, n = as_tensor(s, "s").double().cpu().numpy(), positive_int(n, "n")
    if s.ndim != 1 or not len(s) or (s < 0).any():
        raise ValueError(f"s must be a sequence of nonnegative singular values, got {short(s)}")
    d, p = (len(s) if size is None else positive_int(size, name) for size, name in ((d, "d"), (p, "p")))
    if len(s) > min(p, d):
        raise ValueError(f"s must hold at most min(p, d) = {min(p, d)} values, got {len(s)}")
    kappa, noise, batch = real(kappa, "kappa", at_least=1), real(noise, "noise", at_least=0), batch_shape(batch)
    place = placement(dtype, device)
    values = kappa ** -np.linspace(0, 1, d) if d > 1 else np.ones(1)
    drawn = []
    for rng in problem_generators(seed, int(np.prod(batch)), STREAM):
        V, Q, P = _rotation(rng, d), _rotation(rng, d)[:, : len(s)], _rotation(rng, p)[:, : len(s)]
        white, error = rng.standard_normal((n, d)), rng.standard_normal((n, p))
        root = (V * np.sqrt(values)) @ V.T
        M = (P * s) @ Q.T @ (V / np.sqrt(values)) @ V.T
        X = white @ root
        drawn.append((X, X @ M.T + noise * error, (V * values) @ V.T, M))
    arrays = (np.stack(parts) for parts in zip(*drawn, strict=True))
    X, Y, Sigma, M = (torch.tensor(a, **place).reshape(*batch, *a.shape[1:]) for a in arrays)
    return LinearTask(X, Y, Sigma, M, noise)
