"""Angles between matrices."""

from __future__ import annotations

import torch

from attncore.validation import broadcast_batch, common

__all__ = ["correlation"]


def correlation(A, B) -> torch.Tensor:
    r"""Frobenius cosine of two matrices, batched over leading axes.

    .. math:: \mathrm{corr}(A, B) = \frac{\langle A, B\rangle}{|A|_F\,|B|_F} \in [-1, 1]

    Parameters
    ----------
    A, B : array_like (..., p, q)
        Leading axes broadcast.

    Returns
    -------
    Tensor (...)
        nan where A or B is zero: the zero matrix has no direction. Scale does not matter; entries are divided
        by the largest one first, so huge and tiny matrices are fine.

    Raises
    ------
    ValueError
        If the shapes do not broadcast or an entry is not finite.

    Examples
    --------
    >>> round(float(correlation([[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 0.0]])), 6)
    0.707107
    """
    A, B = common(A=A, B=B)
    if A.ndim < 2 or B.ndim < 2 or A.shape[-2:] != B.shape[-2:]:
        raise ValueError(
            f"A and B must have shapes (..., p, q) with the same p, q, got {tuple(A.shape)} and {tuple(B.shape)}"
        )
    broadcast_batch(A=A.shape[:-2], B=B.shape[:-2])
    A, B = (M / M.abs().amax(dim=(-2, -1), keepdim=True) for M in (A, B))
    cosine = (A * B).sum((-2, -1)) / ((A * A).sum((-2, -1)) * (B * B).sum((-2, -1))).sqrt()
    return cosine.clamp(-1.0, 1.0)
