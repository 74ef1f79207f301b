"""Clarabel on the reduced dual of a nuclear-norm attention SVM: what answers where the interior point method does not.

Clarabel comes with the extra ``book``. Without it `conic` returns None and the answer at hand keeps its gap.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from attncore.svm.nuclear_interior import Program


def conic(program: Program) -> tuple[np.ndarray, np.ndarray] | None:
    """``(W (p, q), lam (m,))`` of the semidefinite dual in `nuclear_interior`, or None when there is no answer."""
    try:
        import clarabel
    except ImportError:
        return None
    u, z = program.u, program.z.repeat(len(program.u) // len(program.z), 0)
    (m, p), q = u.shape, z.shape[1]
    size, kept = p + q, np.flatnonzero(~program.free)
    row, column = np.divmod(np.arange(p * q), q)
    at = (column + p) * (column + p + 1) // 2 + row
    products = (u[:, :, None] * z[:, None, :]).reshape(m, p * q) * np.sqrt(0.5)
    cone = sparse.lil_matrix((size * (size + 1) // 2, m))
    cone[at] = products.T
    signs = sparse.csc_matrix((-np.ones(kept.size), (np.arange(kept.size), kept)), shape=(kept.size, m))
    right = np.zeros(kept.size + cone.shape[0])
    diagonal = np.arange(size)
    right[kept.size + diagonal * (diagonal + 3) // 2] = 0.5
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    cones = [clarabel.NonnegativeConeT(kept.size), clarabel.PSDTriangleConeT(size)]
    nothing = sparse.csc_matrix((m, m))
    rows = sparse.vstack([signs, cone]).tocsc()
    answer = clarabel.DefaultSolver(nothing, -program.b, rows, right, cones, settings).solve()
    lam, X = np.array(answer.x), np.array(answer.z)[kept.size :]
    if not (np.isfinite(lam).all() and np.isfinite(X).all()):
        return None
    W = np.zeros((p, q))
    W[row, column] = X[at] * np.sqrt(0.5)
    return W, lam
