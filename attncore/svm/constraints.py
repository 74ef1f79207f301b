"""The constraints of an attention SVM: ``(x_{i,sel_i} - x_it)^T W z_i >= 1`` for every other token t."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from attncore.validation import as_indices, broadcast_batch, common


@dataclass(frozen=True)
class Constraints:
    """A flat batch of B problems as float64 arrays; row (i, s) reads ``<u[i, s] z[i]^T, W> >= 1``.

    ``u (B, n, T-1, d)`` differences, ``z (B, n, d)`` queries, ``token (B, n, T-1)`` which token each row is
    about, ``T`` tokens a sequence. ``scale (B,)`` is the factor the row matrices were divided by. Rows marked in
    ``equal (B, n, T-1)`` are equations ``<u[i, s] z[i]^T, W> = 0`` instead; None when there are none.
    """

    u: np.ndarray
    z: np.ndarray
    token: np.ndarray
    scale: np.ndarray
    equal: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.z)

    def __getitem__(self, index) -> Constraints:
        equal = None if self.equal is None else self.equal[index]
        return Constraints(self.u[index], self.z[index], self.token[index], self.scale[index], equal)

    def margins(self, W: np.ndarray) -> np.ndarray:
        """Margins ``u[i, s]^T W z[i]`` as (B, n, T-1)."""
        return (self.u @ (self.z @ W.swapaxes(-1, -2))[..., None])[..., 0]

    def least_margin(self, margins: np.ndarray) -> np.ndarray:
        """Smallest margin (B,) over the inequalities; inf where there is none."""
        if self.equal is not None:
            margins = np.where(self.equal, np.inf, margins)
        return margins.min(axis=(1, 2))

    def combine(self, weights: np.ndarray) -> np.ndarray:
        """The adjoint of `margins`: ``sum weights[i, s] u[i, s] z[i]^T`` as (B, d, d)."""
        return (weights[..., None, :] @ self.u)[..., 0, :].swapaxes(-1, -2) @ self.z

    def row_norms(self) -> np.ndarray:
        """Frobenius norms ``|u[i, s]| |z[i]|`` of the rows, (B, n, T-1)."""
        u, z = (np.sqrt(np.einsum("...d,...d->...", a, a)) for a in (self.u, self.z))
        return u * z[..., None]

    def spread(self, weights: np.ndarray) -> np.ndarray:
        """Place row weights (B, n, T-1) at their tokens: (B, n, T), zero at the selected ones."""
        out = np.zeros((*weights.shape[:-1], weights.shape[-1] + 1))
        np.put_along_axis(out, self.token, weights, -1)
        return out

    def collect(self, values: np.ndarray) -> np.ndarray:
        """Read token values (B, n, T) at the rows: (B, n, T-1)."""
        return np.take_along_axis(values, self.token, -1)


def check(X, z, selected) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Validate ``X (..., n, T, d)``, ``z (..., n, d)``, ``selected (..., n)`` and broadcast their batch axes."""
    X, z = common(X=X, z=z)
    if X.ndim < 3 or min(X.shape[-3:]) < 1:
        raise ValueError(f"X must have shape (..., n, T, d) with n, T, d >= 1, got {tuple(X.shape)}")
    n, T, d = X.shape[-3:]
    if z.ndim < 2 or tuple(z.shape[-2:]) != (n, d):
        raise ValueError(f"z must have shape (..., {n}, {d}) to match X {tuple(X.shape)}, got {tuple(z.shape)}")
    selected = as_indices(selected, "selected", T, device=X.device)
    if selected.ndim < 1 or selected.shape[-1] != n:
        raise ValueError(f"selected must have shape (..., {n}), one token a sequence, got {tuple(selected.shape)}")
    batch = broadcast_batch(X=X.shape[:-3], z=z.shape[:-2], selected=selected.shape[:-1])
    if 0 in batch:
        raise ValueError(f"X, z and selected must hold at least one problem, got leading axes {tuple(batch)}")
    return X.expand(*batch, n, T, d), z.expand(*batch, n, d), selected.expand(*batch, n)


def assemble(X: torch.Tensor, z: torch.Tensor, selected: torch.Tensor) -> Constraints:
    """Flatten the batch and form the rows, scaled so that the largest entries of u and of z are 1.

    The scales are powers of two: they round nothing and keep squares of huge or tiny data finite.
    """
    n, T, d = X.shape[-3:]
    tokens = X.detach().cpu().numpy().astype(np.float64, copy=False).reshape(-1, n, T, d)
    queries = z.detach().cpu().numpy().astype(np.float64, copy=False).reshape(-1, n, d)
    picked = selected.cpu().numpy().reshape(-1, n, 1)
    other = np.arange(T - 1) + (np.arange(T - 1) >= picked)
    flat, first = tokens.reshape(-1, d), T * np.arange(len(tokens) * n).reshape(-1, n, 1)
    u = flat.take(first + other, axis=0)
    np.subtract(flat.take(first + picked, axis=0), u, out=u)
    cu = _power_of_two(_largest(u))
    cz = _power_of_two(_largest(queries))
    u /= cu[:, None, None, None]
    return Constraints(u, queries / cz[:, None, None], other, cu * cz)


def _largest(array: np.ndarray) -> np.ndarray:
    flat = array.reshape(len(array), -1)
    return np.maximum(flat.max(1, initial=0.0), -flat.min(1, initial=0.0))


def _power_of_two(largest: np.ndarray) -> np.ndarray:
    return np.where(largest > 0, np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0)))), 1.0)


def differences(X: torch.Tensor, selected: torch.Tensor) -> torch.Tensor:
    """``x_{i,sel_i} - x_it`` (..., n, T, d) of checked arguments; zero at the selected tokens."""
    picked = selected[..., None, None].expand(*selected.shape, 1, X.shape[-1])
    return X.gather(-2, picked) - X


def others(selected: torch.Tensor, T: int) -> torch.Tensor:
    """Mask (..., n, T) of the tokens that are not selected."""
    return torch.arange(T, device=selected.device) != selected[..., None]


def margins(W, X, z, selected) -> torch.Tensor:
    """Margins ``(x_{i,sel_i} - x_it)^T W z_i`` of any W.

    Parameters
    ----------
    W : array_like (..., d, d)
        Leading axes broadcast with the problems'.
    X, z, selected
        As in `attention_svm`.

    Returns
    -------
    Tensor (..., n, T)
        Zero at the selected tokens.

    Raises
    ------
    TypeError, ValueError
        For bad input, as in `attention_svm`.
    """
    W, X, z = common(W=W, X=X, z=z)
    X, z, selected = check(X, z, selected)
    d = X.shape[-1]
    if W.ndim < 2 or tuple(W.shape[-2:]) != (d, d):
        raise ValueError(f"W must have shape (..., {d}, {d}) to match X, got {tuple(W.shape)}")
    broadcast_batch(W=W.shape[:-2], X=X.shape[:-3])
    return (differences(X, selected) @ (z @ W.mT)[..., None])[..., 0]


def smallest_margin(W, X, z, selected) -> torch.Tensor:
    r"""The margin of any W: its smallest logit gap.

    .. math:: m(W) = \min_{i,\, t \ne a_i} (x_{i,a_i} - x_{it})^\top W z_i

    Parameters
    ----------
    W : array_like (..., d, d)
        Leading axes broadcast with the problems'.
    X, z, selected
        As in `attention_svm`.

    Returns
    -------
    Tensor (...)
        Positive where W makes every selected token win; inf where there is no other token (T = 1).

    Raises
    ------
    TypeError, ValueError
        For bad input, as in `attention_svm`.

    Examples
    --------
    >>> float(smallest_margin([[2.0, 0.0], [0.0, 0.0]], [[[1.0, 0.0], [0.5, 3.0], [-1.0, 0.0]]], [[1.0, 0.0]], [0]))
    1.0
    """
    gaps = margins(W, X, z, selected)
    selected = as_indices(selected, "selected", gaps.shape[-1], device=gaps.device)
    return torch.where(others(selected, gaps.shape[-1]), gaps, torch.inf).amin((-2, -1))
