"""The trained weights in either parametrisation: start, logits, gradients."""

from __future__ import annotations

import math

import numpy as np
import torch

from attncore.data import TokenSelection, batch_shape, problem_generators
from attncore.validation import as_tensor, placement, positive_int, real, short

__all__ = ["gaussian_start"]

WEIGHT_STREAM = 1  # data and weights drawn from one seed are independent
START_SCALE = 3**-0.5  # the variance 1 / (3 d) of the published starting weights


class FullWeights:
    """``W`` itself; its matrices and gradients are lists of one."""

    def __init__(self, arrays, start):
        self.arrays = arrays
        self.matrices = [arrays.array(M) for M in start]

    def logits(self):
        """``x_it^T W z_i``, shape (T, n, B)."""
        return self.arrays.scores(self.matrices[0] @ self.arrays.z)

    def gradients(self, g):
        """Gradient with respect to `W` from the gradient `g` (T, n, B) with respect to the logits."""
        return [self.arrays.pull(g) @ self.arrays.zT]


class FactoredWeights(FullWeights):
    """``W = K Q^T``; its matrices and gradients are lists of two."""

    def logits(self):
        """``x_it^T K Q^T z_i``, shape (T, n, B); keeps ``Q^T z_i`` for the gradient."""
        K, Q = self.matrices
        self.query = _T(Q) @ self.arrays.z
        return self.arrays.scores(K @ self.query)

    def gradients(self, g):
        """Gradients with respect to `K` and `Q` at the state whose logits were computed last."""
        pulled = self.arrays.pull(g)
        return [pulled @ _T(self.query), self.arrays.z @ (_T(pulled) @ self.matrices[0])]


def _T(M):
    return M.swapaxes(-1, -2)


PARAMETRIZATIONS = {"W": FullWeights, "KQ": FactoredWeights}


def gaussian_start(batch, d: int, m: int, seed: int = 0, scale: float = START_SCALE, dtype=None, device=None):
    """Small Gaussian `K0` and `Q0`, (..., d, m) each, entries of standard deviation ``scale / sqrt(d)``.

    Problem b of the batch depends on ``(seed, b)`` only, and is independent of the data that
    :func:`attncore.data.token_selection` draws from the same seed. The default scale gives entries the
    variance ``1 / (3 d)`` of the published experiments (arXiv 2308.16898), which start from uniform ones.

    Parameters
    ----------
    batch : int or tuple of int
        Leading axes; ``()`` for a single pair.
    d, m : int
        Dimension of the tokens, width of `K` and `Q`.
    seed : int
    scale : float
        At least 0.
    dtype, device
        Of the tensors (default float64, CPU). Drawn in float64 on the CPU, then moved.

    Returns
    -------
    K0, Q0 : tensors (..., d, m)

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value and what was expected.
    """
    batch, d, m = batch_shape(batch), positive_int(d, "d"), positive_int(m, "m")
    seed, scale = positive_int(seed, "seed", minimum=0), real(scale, "scale", at_least=0.0)
    count = math.prod(batch)
    draws = np.empty((2, count, d, m))
    for b, rng in enumerate(problem_generators(seed, count, WEIGHT_STREAM)):
        draws[:, b] = rng.standard_normal((2, d, m))
    pair = torch.tensor(draws * (scale / d**0.5), **placement(dtype, device))
    return tuple(M.reshape(*batch, d, m) for M in pair)


def start_weights(prob: TokenSelection, parametrization: str, m, init, seed) -> list[torch.Tensor]:
    """The weights a run starts from, checked: ``[W0]`` or ``[K0, Q0]``, each (..., d, d or m)."""
    batch, d = prob.batch, prob.X.shape[-1]
    like = dict(dtype=prob.X.dtype, device=prob.X.device)
    factored = parametrization == "KQ"
    if m is not None:
        m = positive_int(m, "m")
        if not factored:
            raise ValueError(f"m belongs to parametrization 'KQ' and must be None for 'W', got {m}")
    if init is None and not factored:
        return [torch.zeros(*batch, d, d, **like)]
    if init is None:
        return list(gaussian_start(batch, d, m or d, seed, **like))
    if factored and not (isinstance(init, (tuple, list)) and len(init) == 2):
        raise ValueError(f"init must be a pair (K0, Q0) for parametrization 'KQ', got {short(init)}")
    named = {"init[0]": init[0], "init[1]": init[1]} if factored else {"init": init}
    weights = [one_start(value, name, batch, d, m if factored else d, like) for name, value in named.items()]
    if len({M.shape for M in weights}) > 1:
        shapes = " and ".join(str(tuple(M.shape)) for M in weights)
        raise ValueError(f"init must hold K0 and Q0 of one shape, got {shapes}")
    return weights


def one_start(value, name, batch, d, width, like) -> torch.Tensor:
    """One matrix (d, width), or a batch of them, checked and expanded to (*batch, d, width)."""
    if isinstance(value, torch.Tensor) and value.device != like["device"]:
        raise ValueError(f"{name} must be on {like['device']} like the tokens, got {value.device}")
    value = as_tensor(value, name, **like)
    width = width or (value.shape[-1] if value.ndim else 0)
    if value.ndim < 2 or value.shape[-2:] != (d, width) or value.shape[:-2] not in ((), batch) or not width:
        expected = [(*shape, d, width or "m") for shape in dict.fromkeys([batch, ()])]
        raise ValueError(f"{name} must have shape {' or '.join(map(str, expected))}, got {short(value)}")
    return value.expand(*batch, d, width)
