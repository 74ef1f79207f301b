"""The arrays of the training loop: NumPy for small problems on a CPU, torch for all others.

The algebra of a step is written once, in the operations that NumPy arrays and torch tensors share; what
differs is here, above all the contractions with tokens. There is one batch axis, of length B; vectors, one
a sequence, are columns ``(B, d, n)``; matrices are ``(B, a, b)``; token values have shape ``(T, n, B)``, so
that sums over tokens run along a contiguous axis.

Why NumPy: a step on small problems is some forty operations of a few microseconds, and what counts is what
an operation costs beyond its arithmetic. Measured for 100 problems of n = 6, T = 8, d = 10 on one thread, a
step of W takes 254 us in torch and 144 us in NumPy; for one problem 148 us and 50 us.
"""

from __future__ import annotations

import numpy as np
import torch

SMALL_PROBLEM = 4096  # largest number of token entries T * d, and of weights d * m, of a "small" problem


class TorchArrays:
    """Tensors on any device. No operation waits for the host.

    Parameters
    ----------
    X : (B, n, T, d)
    z : (B, n, d)
    """

    xp = torch
    on_host = False

    def __init__(self, X: torch.Tensor, z: torch.Tensor):
        self.X = X.contiguous()
        self.z, self.zT = self.array(z.mT), self.array(z)

    @staticmethod
    def array(tensor):
        """A contiguous array holding a copy of the tensor."""
        return tensor.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def tensor(array) -> torch.Tensor:
        """The array as a tensor that shares its memory."""
        return array

    @staticmethod
    def borrow(tensor):
        """The tensor as an array that shares its memory."""
        return tensor

    def scores(self, u):
        """``x_it^T u_i``: vectors to token values."""
        return (self.X @ u.mT.unsqueeze(-1)).squeeze(-1).permute(2, 1, 0).contiguous()

    def pull(self, g):
        """``sum_t g_it x_it``: token values to vectors."""
        return (g.permute(2, 1, 0).unsqueeze(-2) @ self.X).squeeze(-2).mT

    @staticmethod
    def largest(values):
        """Maximum over the first axis."""
        return values.amax(0)

    @staticmethod
    def inner(A, B):
        """Frobenius inner products of matrices, (B,)."""
        return (A * B).sum((1, 2))

    def columns(self, n: int, B: int):
        """Position of each (sequence, problem) within a row of token values, (n, B)."""
        return torch.arange(n * B, device=self.X.device).reshape(n, B)


class NumpyArrays:
    """NumPy arrays sharing memory with CPU tensors; the same methods as :class:`TorchArrays`."""

    xp = np
    on_host = True
    largest = staticmethod(np.maximum.reduce)

    def __init__(self, X: torch.Tensor, z: torch.Tensor):
        self.X = np.ascontiguousarray(X.permute(2, 3, 1, 0).numpy())
        self.z, self.zT = self.array(z.mT), self.array(z)

    @staticmethod
    def array(tensor):
        return np.array(tensor.numpy(), order="C")

    @staticmethod
    def tensor(array) -> torch.Tensor:
        return torch.from_numpy(array)

    @staticmethod
    def borrow(tensor):
        return tensor.numpy()

    def scores(self, u):
        return np.einsum("tdnb,dnb->tnb", self.X, np.ascontiguousarray(u.transpose(1, 2, 0)))

    def pull(self, g):
        return np.ascontiguousarray(np.einsum("tdnb,tnb->dnb", self.X, g).transpose(2, 0, 1))

    @staticmethod
    def inner(A, B):
        return np.vecdot(A.reshape(len(A), -1), B.reshape(len(B), -1))

    @staticmethod
    def columns(n: int, B: int):
        return np.arange(n * B).reshape(n, B)


def choose_arrays(X: torch.Tensor, z: torch.Tensor, m: int) -> TorchArrays | NumpyArrays:
    """The faster arrays for tokens (B, n, T, d), queries (B, n, d) and matrices (B, d, m)."""
    T, d = X.shape[-2:]
    small = X.device.type == "cpu" and max(T * d, d * m) <= SMALL_PROBLEM
    return (NumpyArrays if small else TorchArrays)(X, z)
