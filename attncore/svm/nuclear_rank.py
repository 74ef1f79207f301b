"""The nuclear-norm attention SVM under a bound on the rank: a local search, measured against the convex relaxation."""

from __future__ import annotations

import numpy as np

from attncore.svm import frobenius, nuclear
from attncore.svm.assess import package
from attncore.svm.constraints import assemble, check
from attncore.svm.nuclear_polish import polish
from attncore.svm.quadratic import least_norm
from attncore.svm.solution import InfeasibleError, Solution, Status
from attncore.validation import positive_int, real

ROUNDS = 200


def attention_svm_low_rank(X, z, selected, m, starts=10, seed=0, tol=1e-9) -> Solution:
    r"""Search the attention SVM of least nuclear norm among matrices of rank at most m.

    .. math:: \min_{K, Q \in \mathbb R^{d \times m}} \tfrac12 (|K|_F^2 + |Q|_F^2) \quad\text{subject to}\quad
        (x_{i,a_i} - x_{it})^\top K Q^\top z_i \ge 1

    to which the regularisation path of (K, Q) with m columns belongs. For m below the rank of the convex minimiser the
    problem is *not convex*: K and Q are improved in turn (each step a quadratic program), from the leading part of the
    convex minimiser and from random starts, then Newton's method settles a stationary point.

    Parameters
    ----------
    X, z, selected
        As in `attention_svm`.
    m : int
        Bound on the rank.
    starts : int
        Starts a problem, the first from the convex minimiser, the others random.
    seed : int
        Of the random starts; those of problem b depend on (seed, b) only.
    tol : float
        Gap to the convex minimum below which the answer is proved best.

    Returns
    -------
    Solution
        The best point found. ``gap`` is taken to the *convex* minimum, a lower bound: OPTIMAL means proved best.
        APPROXIMATE means feasible, of rank at most m, and no proof: the true minimum lies between
        ``value * (1 - gap)`` and ``value``. Where no feasible point was found, which proves nothing either, W is
        nan, the value inf and the gap 1. INFEASIBLE is said of problems that no W of any rank solves. The dual
        variables are those of the convex problem.

    Raises
    ------
    InfeasibleError
        As in `attention_svm`.
    TypeError, ValueError
        For bad input.

    References
    ----------
    The (K, Q) parametrisation of arXiv 2308.16898.

    Examples
    --------
    Two sequences whose convex minimiser is the identity, of rank 2 and value 2; with rank one the value is 4.

    >>> X = [[[0, 0], [-1, -0.5], [-1, 0.5]], [[0, 0], [-0.5, -1], [0.5, -1]]]
    >>> one = attention_svm_low_rank(X, [[1, 0], [0, 1]], [0, 0], m=1)
    >>> round(float(one.value), 9), round(float(one.gap), 9), int(one.rank)
    (4.0, 0.5, 1)
    """
    X, z, selected = check(X, z, selected)
    m, starts = positive_int(m, "m"), positive_int(starts, "starts")
    seed, tol = positive_int(seed, "seed", minimum=0), real(tol, "tol", above=0)
    rows = assemble(X, z, selected)
    if not rows.u.shape[2]:
        none = np.zeros(rows.u.shape[:3])
        return package(rows, rows.combine(none), none, none, np.ones(len(rows)), "nuc", tol, X)
    plain = frobenius.solve(rows, min(tol, 1e-9))
    best = nuclear.solve(rows, min(tol, 1e-9), plain)
    lost = np.zeros(len(rows), bool)
    for k in np.flatnonzero(np.isnan(best.proof[:, 0, 0])):
        reduced = nuclear.Reduced(rows, k, plain)
        values = np.linalg.svd(best.W[k], compute_uv=False)
        if (values > 1e-9 * values[0]).sum() > m:
            W = _search(reduced, best.W[k], m, starts, np.random.default_rng([seed, k]))
            best.unique[k] = -1
            lost[k] = W is None
            if W is not None:
                best.W[k] = reduced.left @ W @ reduced.right.T * reduced.size
    solution = package(rows, best.W, best.weights, best.proof, best.unique, "nuc", tol, X)
    for k in np.flatnonzero(lost):
        _empty(solution, k)
    if solution.status.ndim == 0 and int(solution.status) == Status.INFEASIBLE:
        raise InfeasibleError(f"no W of any rank separates the selected tokens {selected.tolist()}: .certificate "
                              "holds weights that prove it", solution.certificate)
    return solution


def _empty(solution: Solution, k: int) -> None:
    """Say that nothing was found for problem k."""
    def flat(tensor):
        return tensor.view(-1, *tensor.shape[solution.status.ndim:])

    for name, value in (("W", np.nan), ("value", np.inf), ("margin", 0.0), ("gap", 1.0), ("max_violation", np.nan),
                        ("kkt_residual", np.nan), ("status", int(Status.APPROXIMATE))):
        flat(getattr(solution, name))[k] = value


def _search(reduced: nuclear.Reduced, W, m: int, starts: int, rng) -> np.ndarray | None:
    """The best feasible point of rank at most m from all starts, in reduced coordinates."""
    program = reduced.program
    z = program.z.repeat(len(program.u) // len(program.z), 0)
    _, values, basis = np.linalg.svd(reduced.left.T @ W @ reduced.right, full_matrices=False)
    found, least = None, np.inf
    for start in range(starts):
        Q = basis[:m].T * np.sqrt(values[:m]) if start == 0 else rng.normal(size=(z.shape[1], m))
        for candidate in _descend(program.u, z, program.b, Q):
            margin = ((program.u @ candidate * z).sum(1) / program.b).min()
            size = np.linalg.norm(candidate, "nuc") / margin if margin > 0 else np.inf
            if size < least:
                found, least = candidate, size
    return found


def _descend(u, z, b, Q):
    """The end point of turns between K and Q, and what Newton's method makes of it; empty where nothing separates."""
    size = np.inf
    turned = True
    for _ in range(ROUNDS):
        turned = not turned
        a, c = (z, u) if turned else (u, z)
        features = c @ Q
        lam = least_norm((a[:, :, None] * features[:, None, :]).reshape(len(a), -1), b)
        if lam is None:
            return []
        K = (a.T * lam) @ features
        left, values, right = np.linalg.svd(K @ Q.T, full_matrices=False)
        r = Q.shape[1]
        W = (left[:, :r] * values[:r]) @ right[:r]
        settled = values.sum() > size * (1 - 1e-9)
        size, Q = values.sum(), left[:, :r] * np.sqrt(values[:r])
        if settled:
            break
    W = W.T if turned else W
    _, values, right = np.linalg.svd(W, full_matrices=False)
    refined = polish(u, z, b, np.zeros(len(u), bool), lam, right[:r].T * np.sqrt(values[:r]))
    return [W] if refined is None else [W, refined[0]]
