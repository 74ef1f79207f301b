"""The empirical loss and its gradient in closed form, by blocks of queries and tiles of keys.

With ``W = softmax(X B X^T)`` by rows, ``c = W X``, ``e = c A^T - Y`` and ``g = e A``, all sums over n tokens::

    grad_A = e^T c / n,      grad_B = X^T [W o (g X^T - (g . c) 1^T)] X / n

Only one block of W exists at a time, keys down, queries across. It is filled tile by tile while the tile is in cache,
exponentiated in place, left unnormalised (a row of ones among the keys gives the sums) and used again for
``grad_B``. Arrays carry one leading batch axis g; ``...T`` in a name says that tokens run along the last axis.
"""

from __future__ import annotations

import numpy as np
import torch

# Below about 1e6 multiplications OpenBLAS takes kernels that are twice as fast on thin matrices.
SMALL_PRODUCT = 800_000

# A diverging run is reported by its status; its overflows need no warning on the way.
QUIET = np.errstate(over="ignore", invalid="ignore", divide="ignore")


def rows_in_block(n: int, device: torch.device) -> int:
    """Queries a block: few enough that a block of W over n keys stays near the cache, enough to fill a product."""
    return max(16, min(256, 2**18 // n)) if device.type == "cpu" else max(32, min(4096, 2**25 // n))


def keys_in_tile(rows: int, d: int, device: torch.device) -> int:
    """Keys a tile for `rows` queries in dimension `d`."""
    return max(128, min(4096, SMALL_PRODUCT // (rows * (d + 1)))) if device.type == "cpu" else 2**20


class Keys:
    """Context tokens (g, n, d) cut into tiles, each also transposed and with a row of ones appended."""

    def __init__(self, context: torch.Tensor, rows: int):
        n, d = context.shape[-2:]
        # numpy's in-place exponential and thin products are faster on a CPU than torch's; a device needs torch.
        self.lib = np if context.device.type == "cpu" else torch
        self.like, self.kept = context, None
        self.longest = torch.linalg.vector_norm(context, dim=-1).amax(-1)
        width = keys_in_tile(rows, d, context.device)
        ones = torch.cat([context, torch.ones_like(context[..., :1])], -1).mT
        self.tiles = [
            (self.native(context[:, start : start + width]), self.native(ones[..., start : start + width]))
            for start in range(0, n, width)
        ]

    def native(self, tensor: torch.Tensor):
        """The same values, contiguous, as the library of this device wants them."""
        tensor = tensor.detach().contiguous()
        return tensor.numpy() if self.lib is np else tensor

    def tensor(self, array) -> torch.Tensor:
        """A tensor again."""
        return torch.from_numpy(np.ascontiguousarray(array)) if self.lib is np else array

    def workspace(self, batch: int, rows: int):
        """One array (g, keys, rows) for each tile, and one more for scratch; kept for the next block that fits."""
        if self.kept is None or self.kept[0].shape[::2] != (batch, rows):
            widths = [plain.shape[-2] for plain, _ in self.tiles]
            self.kept = [self.native(self.like.new_empty(batch, width, rows)) for width in (*widths, max(widths))]
        return self.kept[:-1], self.kept[-1]


def exponentials(keys: Keys, W, QT, safe: bool):
    """Fill the tiles `W` with ``exp(X Q^T - shift)`` and return the sums ``[X^T W; 1^T W]`` (g, d + 1, rows).

    `safe` says that no logit can overflow, so that the shift by the largest logit, and a pass over W, is not needed.
    """
    lib, total = keys.lib, 0.0
    if not safe:
        tops = [lib.amax(lib.matmul(plain, QT, out=w), 1) for w, (plain, _) in zip(W, keys.tiles, strict=True)]
        top = tops[0]
        for other in tops[1:]:
            top = lib.maximum(top, other)
        top = top[:, None]
    for w, (plain, with_ones) in zip(W, keys.tiles, strict=True):
        if safe:
            lib.matmul(plain, QT, out=w)
        else:
            lib.subtract(w, top, out=w)
        lib.exp(w, out=w)
        total = total + lib.matmul(with_ones, w)
    return total


def second_moments(keys: Keys, W, gT):
    """``sum_j W_ij (g_i . x_j) x_j`` for the queries of a block, (g, d, rows)."""
    lib, total, scratch = keys.lib, 0.0, keys.kept[-1]
    for w, (plain, with_ones) in zip(W, keys.tiles, strict=True):
        slope = scratch[:, : w.shape[1]]
        lib.matmul(plain, gT, out=slope)
        lib.multiply(slope, w, out=slope)
        total = total + lib.matmul(with_ones[:, :-1], slope)
    return total


def is_safe(keys: Keys, Q: torch.Tensor) -> bool:
    """Whether ``|q_i| |x_j|`` keeps every logit far from overflow and underflow of the exponential."""
    bound = torch.linalg.vector_norm(Q, dim=-1).amax(-1) * keys.longest
    return bool((bound < (300 if Q.dtype == torch.float64 else 30)).all())


def blocks(keys: Keys, B, queries, chunk: int):
    """Yield ``(slice of queries, tiles of W, their sums, attended tokens cT)``, block after block."""
    batch, m, d = queries.shape
    Q = queries @ B
    safe, QT = is_safe(keys, Q), keys.native(Q.mT)
    for start in range(0, m, chunk):
        cut = slice(start, min(start + chunk, m))
        W, _ = keys.workspace(batch, cut.stop - cut.start)
        total = exponentials(keys, W, QT[..., cut], safe)
        yield cut, W, total[:, d:], total[:, :d] / total[:, d:]


@QUIET
def attended(keys: Keys, B, queries, chunk: int) -> torch.Tensor:
    """Attended tokens ``c_i = sum_j softmax_j(q_i^T B x_j) x_j`` (g, m, d)."""
    return torch.cat([keys.tensor(cT) for _, _, _, cT in blocks(keys, B, queries, chunk)], -1).mT


@QUIET
def loss_and_gradient(keys: Keys, A, B, queries, Y, chunk: int):
    """Loss (g,) and gradients (g, p, d), (g, d, d) for A (g, p, d), B (g, d, d), queries (g, m, d), Y (g, m, p)."""
    m, lib, value = queries.shape[-2], keys.lib, keys.native(A)
    YT, rawT = keys.native(Y.mT), keys.native(queries.mT)
    loss, gA, gB = 0.0, 0.0, 0.0
    for cut, W, sums, cT in blocks(keys, B, queries, chunk):
        error = lib.matmul(value, cT) - YT[..., cut]
        gT = lib.matmul(value.swapaxes(-1, -2), error)
        jacobian = second_moments(keys, W, gT / sums) - (gT * cT).sum(1)[:, None] * cT
        loss = loss + (error * error).sum(-1).sum(-1)
        gA = gA + lib.matmul(error, cT.swapaxes(-1, -2))
        gB = gB + lib.matmul(rawT[..., cut], jacobian.swapaxes(-1, -2))
    return keys.tensor(loss) / (2 * m), keys.tensor(gA) / m, keys.tensor(gB) / m
