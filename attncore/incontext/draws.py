"""Drawing features and counts of features, exactly and fast, from a numpy generator."""

from __future__ import annotations

import numpy as np

CELLS = 1 << 16


def draw_features(generator: np.random.Generator, p: np.ndarray, shape) -> np.ndarray:
    """Independent features with probabilities `p`, small integers of the given shape.

    The unit interval is cut into 2^16 cells, and 16 random bits choose one.  Nearly every cell lies inside one
    feature's stretch of the interval, which a table tells; only in a cell that holds a boundary is the place
    inside it drawn too, so the probabilities are those of `p` and not rounded to 2^-16.
    """
    edges = np.cumsum(p)[:-1]
    corners = np.searchsorted(edges, np.arange(CELLS + 1) / CELLS, side="right")
    unsure = len(p)
    table = np.where(corners[:-1] == corners[1:], corners[:-1], unsure).astype(np.min_scalar_type(unsure))
    cell = generator.integers(0, CELLS, size=shape, dtype=np.uint16)
    features = table.take(cell)
    doubtful = np.flatnonzero(features == unsure)
    place = (cell.ravel()[doubtful] + generator.random(doubtful.size)) / CELLS
    features.ravel()[doubtful] = np.searchsorted(edges, place, side="right")
    return features


def draw_counts(generator: np.random.Generator, p: np.ndarray, N: int, size: int) -> np.ndarray:
    """Counts of each feature in `size` prompts of `N` tokens, float64 ``(size, K)``: Multinomial(N, p)."""
    K = len(p)
    # numpy's multinomial costs a binomial a feature, about as much as twenty tokens
    if N > 20 * K:
        return generator.multinomial(N, p, size=size).astype(float)
    features = draw_features(generator, p, (size, N))
    counts = np.empty((size, K))
    # a few prompts at a time, so that their indices stay in the cache
    for start in range(0, size, 256):
        part = features[start:start + 256]
        index = part + K * np.arange(len(part))[:, None]
        counts[start:start + 256] = np.bincount(index.ravel(), minlength=index.shape[0] * K).reshape(-1, K)
    return counts
