r"""Whether a nuclear-norm attention SVM has one minimiser: decided by a proof, or left open.

Let (W, lambda) be optimal and :math:`S = \sum \lambda u z^T` with singular vectors U, V to the singular value 1.
Every minimiser W' pairs with lambda (:math:`\langle S, W' \rangle = |W'|_*`, complementary slackness), so that

.. math:: W' = U M V^T,\quad M \succeq 0 \text{ symmetric},\qquad u^T W' z = b \text{ on the rows with } \lambda > 0 .

*Unique*, if these equations determine M. *Not unique*, if some symmetric N, supported on the range of W, changes no
tight row: then W + t U N V^T is optimal for small t too, and one of these is measured before the verdict is given.
Between the two (no strict complementarity) the question stays open.
"""

from __future__ import annotations

import numpy as np

from attncore.svm.nuclear_interior import Program

UNIQUE, NOT_UNIQUE, OPEN = 1, 0, -1
SMALL = 1e-6


def uniqueness(program: Program, W: np.ndarray, lam: np.ndarray) -> int:
    """Verdict on a certified pair in reduced coordinates: 1 unique, 0 not unique, -1 open.

    "Tight", "positive" and "equal to 1" are read up to 1e-6 in units of the largest.
    """
    u, z = program.u, program.z.repeat(len(program.u) // len(program.z), 0)
    left, values, right = np.linalg.svd(program.combine(lam), full_matrices=False)
    face = values > (1.0 - SMALL) * values[0]
    held = program.free | (lam > SMALL * lam.max(initial=0.0))
    if _kernel(u[held] @ left[:, face], z[held] @ right[face].T) is None:
        return UNIQUE
    left, values, right = np.linalg.svd(W, full_matrices=False)
    face = values > SMALL * values[0]
    left, values, right = left[:, face], values[face], right[face].T
    slack = np.where(program.free, 0.0, program.margins(W) - program.b)
    tight = slack <= SMALL * program.b.max()
    turn = _kernel(u[tight] @ left, z[tight] @ right)
    if turn is None:
        return OPEN
    turn = left @ turn @ right.T
    change = program.margins(turn)
    loose = ~tight & (change < 0)
    other = W + 0.5 * min(values[-1], (slack[loose] / -change[loose]).min(initial=np.inf)) * turn
    sizes = [np.linalg.norm(matrix, "nuc") for matrix in (W, other)]
    moved = np.where(program.free, np.abs(change), program.b - program.margins(other)).max()
    optimal = moved <= 1e-9 * program.b.max() and abs(sizes[1] - sizes[0]) <= 1e-9 * sizes[0]
    return NOT_UNIQUE if optimal and np.linalg.norm(other - W) > SMALL * sizes[0] else OPEN


def _kernel(a: np.ndarray, c: np.ndarray) -> np.ndarray | None:
    """A symmetric N of spectral norm 1 with ``a[k]^T N c[k] = 0`` for every row k, or None when only 0 does."""
    r = a.shape[1]
    i, j = np.triu_indices(r)
    weight = np.where(i == j, 0.5, np.sqrt(0.5))
    G = weight * (a[:, i] * c[:, j] + a[:, j] * c[:, i])
    length = np.linalg.norm(G, axis=1, keepdims=True)
    G = G / np.maximum(length, SMALL)
    _, values, basis = np.linalg.svd(G)
    if len(values) == i.size and values[-1] > SMALL:
        return None
    N = np.zeros((r, r))
    N[i, j] = basis[-1] * np.where(i == j, 1.0, np.sqrt(0.5))
    N = N + np.triu(N, 1).T
    return N / np.linalg.norm(N, 2)
