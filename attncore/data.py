"""Seeded token-selection problems: tokens, queries, labels and a fixed linear head."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from attncore.validation import common, placement, positive_int, short

__all__ = ["TokenSelection", "token_selection"]


@dataclass(frozen=True)
class TokenSelection:
    """A token-selection problem, or a batch of them over leading axes.

    Built from any arrays: ``TokenSelection(X, z, y, v)``. Arrays and lists become tensors, integers
    become float64, everything gets one dtype (float32 or float64) and must live on one device.

    Attributes
    ----------
    X : (..., n, T, d)
        Tokens: n sequences of T tokens in dimension d.
    z : (..., n, d)
        Queries, one a sequence.
    y : (..., n)
        Labels, -1 or +1.
    v : (..., d)
        Linear head. A single head ``(d,)`` given with batched tokens is shared by all problems.
    scores : (..., n, T)
        Derived: ``gamma_it = y_i v^T x_it``, the margin a sequence would have if it attended to token t only.
    optimal : (..., n) int64
        Derived: ``opt_i = argmax_t gamma_it`` (first of the maximisers when several tie).

    Raises
    ------
    ValueError
        If shapes do not fit, an axis is empty, a label is not -1 or +1, or an entry is not finite.

    Notes
    -----
    The model and the scores are those of arXiv 2308.16898 (*Transformers as Support Vector Machines*).
    """

    X: torch.Tensor
    z: torch.Tensor
    y: torch.Tensor
    v: torch.Tensor
    scores: torch.Tensor = field(init=False, repr=False)
    optimal: torch.Tensor = field(init=False, repr=False)

    def __post_init__(self):
        X, z, y, v = common(X=self.X, z=self.z, y=self.y, v=self.v)
        if X.ndim < 3 or 0 in X.shape:
            raise ValueError(f"X must have shape (..., n, T, d) with no empty axis, got {short(X)}")
        batch, n, d = X.shape[:-3], X.shape[-3], X.shape[-1]
        if v.shape == (d,):
            v = v.expand(*batch, d)
        for name, value, shape in (("z", z, (*batch, n, d)), ("y", y, (*batch, n)), ("v", v, (*batch, d))):
            if value.shape != shape:
                raise ValueError(f"{name} must have shape {tuple(shape)} to match X, "
                                 f"whose shape is {tuple(X.shape)}; got {short(value)}")
        if not bool((y.abs() == 1).all()):
            raise ValueError(f"y must hold labels -1 or +1, got also {y[y.abs() != 1].unique()[:4].tolist()}")
        scores = y.unsqueeze(-1) * (X @ v[..., None, :, None]).squeeze(-1)
        for name, value in dict(X=X, z=z, y=y, v=v, scores=scores, optimal=scores.argmax(-1)).items():
            object.__setattr__(self, name, value)

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape of the leading (batch) axes; ``()`` for a single problem."""
        return tuple(self.X.shape[:-3])

    def __getitem__(self, index) -> TokenSelection:
        """Pick problems out of a batch, as one indexes a tensor by its leading axes."""
        if not self.batch:
            raise ValueError("a single problem cannot be indexed, only a batch of problems")
        return TokenSelection(self.X[index], self.z[index], self.y[index], self.v[index])

    def to(self, device=None, dtype=None) -> TokenSelection:
        """Return the same problem on another device or in another dtype."""
        return TokenSelection(*(a.to(device=device, dtype=dtype) for a in (self.X, self.z, self.y, self.v)))


def check_problem(prob) -> TokenSelection:
    """Return `prob`; a `TypeError` if it is no `TokenSelection`."""
    if not isinstance(prob, TokenSelection):
        raise TypeError(f"prob must be a TokenSelection, got {short(prob)}")
    return prob


def batch_shape(batch) -> tuple[int, ...]:
    """A batch shape from an int or a tuple of ints."""
    if isinstance(batch, (tuple, list, torch.Size)):
        return tuple(positive_int(size, "batch") for size in batch)
    return (positive_int(batch, "batch"),)


def problem_generators(seed, count: int, stream: int, start: int = 0):
    """Independent generators, one a problem: number b depends on ``(seed, start + b, stream)`` only."""
    seed = positive_int(seed, "seed", minimum=0)
    return (np.random.default_rng((seed, start + b, stream)) for b in range(count))


def token_selection(n: int, T: int, d: int, seed: int = 0, batch=(), self_attention: bool = False,
                    dtype=None, device=None, start: int = 0) -> TokenSelection:
    """Random token-selection problems: tokens, queries and head uniform on the unit sphere, fair labels.

    Parameters
    ----------
    n, T, d : int
        Sequences, tokens a sequence, dimension.
    seed : int
        Seed, at least 0. Problem b of the batch depends on ``(seed, b)`` only: a larger batch begins with
        the smaller one, and the choice of `dtype`, `device` or `self_attention` changes no draw.
    batch : int or tuple of int
        Batch shape; ``()`` gives one problem without a batch axis.
    self_attention : bool
        Take ``z_i = x_i1`` in place of independent queries (the other draws stay the same).
    dtype, device
        Of the tensors (default float64, CPU). Drawn in float64 on the CPU, then moved.
    start : int
        Number of the first problem, so that ``token_selection(..., batch=(), start=b)`` is problem b alone.

    Returns
    -------
    TokenSelection
        `X`, `z` and `v` independent and uniform on the unit sphere, `y` fair signs: the ensemble of the
        experiments in arXiv 2308.16898.

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive integer, `seed` is negative, or `dtype` is not float32 or float64.

    Examples
    --------
    >>> problem = token_selection(n=2, T=3, d=4, seed=1, batch=5)
    >>> problem.X.shape, problem.optimal.shape
    (torch.Size([5, 2, 3, 4]), torch.Size([5, 2]))
    """
    n, T, d = (positive_int(value, name) for value, name in ((n, "n"), (T, "T"), (d, "d")))
    batch, start = batch_shape(batch), positive_int(start, "start", minimum=0)
    if not isinstance(self_attention, bool):
        raise TypeError(f"self_attention must be True or False, got {short(self_attention)}")
    count, place = math.prod(batch), placement(dtype, device)
    X, z, v = np.empty((count, n, T, d)), np.empty((count, n, d)), np.empty((count, d))
    y = np.empty((count, n))
    for b, rng in enumerate(problem_generators(seed, count, 0, start)):
        X[b], z[b], v[b] = (rng.standard_normal(a.shape[1:]) for a in (X, z, v))
        y[b] = rng.integers(0, 2, n) * 2 - 1
    for a in (X, z, v):
        a /= np.linalg.norm(a, axis=-1, keepdims=True)
    if self_attention:
        z = X[:, :, 0, :]
    X, z, y, v = (torch.tensor(a, **place).reshape(*batch, *a.shape[1:]) for a in (X, z, y, v))
    return TokenSelection(X, z, y, v)
