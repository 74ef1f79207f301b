"""Random attention SVMs, plain and degenerate, and an independent judge of feasibility."""

import numpy as np
from scipy.optimize import linprog

KINDS = ("plain", "duplicates", "collinear", "low rank", "one query", "twin sequences", "integers", "scales",
         "far from zero", "zero query", "many tokens", "planted integers")


def problem(kind: str, seed: int):
    """Tokens (n, T, d), queries (n, d) and selected tokens (n,) of one problem of a kind."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    n, T, d = (int(rng.integers(1, 9)), int(rng.integers(2, 9)), int(rng.integers(1, 11)))
    if kind == "many tokens":
        n, T = int(rng.integers(1, 5)), 40
    X, z, selected = rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), rng.integers(0, T, n)
    own = X[np.arange(n), selected]
    if kind == "duplicates":
        X[:, -1] = X[:, 0]
    elif kind == "collinear":
        X = own[:, None] - rng.uniform(0.1, 3, (n, T, 1)) * rng.normal(size=(n, 1, d))
        X[np.arange(n), selected] = own
    elif kind == "low rank":
        r = int(rng.integers(1, d + 1))
        plane = rng.normal(size=(r, d))
        X, z = rng.normal(size=(n, T, r)) @ plane, rng.normal(size=(n, r)) @ plane
    elif kind == "one query":
        z[:] = z[0]
    elif kind == "twin sequences" and n > 1:
        X[1], z[1], selected[1] = X[0], z[0], selected[0]
    elif kind == "integers":
        X, z = np.round(X), np.round(z)
    elif kind == "scales":
        X, z = X * 10.0 ** rng.uniform(-3, 3, (n, 1, 1)), z * 10.0 ** rng.uniform(-3, 3, (n, 1))
    elif kind == "far from zero":
        X = X + 1e6 * rng.normal(size=d)
    elif kind == "zero query":
        z[0] = 0
    if kind == "planted integers":
        X, z = rng.integers(-2, 3, (n, T, d)).astype(float), rng.integers(-1, 2, (n, d)).astype(float)
    if kind in ("many tokens", "planted integers"):
        selected = np.einsum("ntd,de,ne->nt", X, rng.normal(size=(d, d)), z).argmax(1)
    return X, z, selected


def rows(X, z, selected) -> np.ndarray:
    """The constraint matrices ``(x_sel - x_t) z^T``, flattened, one a row, written out one by one."""
    return np.array([
        np.outer(X[i, selected[i]] - X[i, t], z[i]).ravel()
        for i in range(len(z)) for t in range(X.shape[1]) if t != selected[i]
    ])


def separable(X, z, selected) -> bool:
    """Whether some W separates the selected tokens, by linear programming on rows of unit length."""
    A = rows(X, z, selected)
    length = np.linalg.norm(A, axis=1, keepdims=True)
    if (length == 0).any():
        return False
    m, p = A.shape
    objective = np.r_[np.zeros(p), -1.0]
    bounds = [(-1, 1)] * p + [(None, 1)]
    answer = linprog(objective, A_ub=np.c_[-A / length, np.ones(m)], b_ub=np.zeros(m), bounds=bounds)
    return -answer.fun > 1e-7
