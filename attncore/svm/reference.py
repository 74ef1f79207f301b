"""The referee: attention SVMs written down for cvxpy, sharing nothing with the solvers of this package, and slower."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch

from attncore.validation import as_tensor, one_of

SOLVERS = ("clarabel", "scs")


@dataclass(frozen=True)
class Reference:
    """What the modelling language reports, not certified.

    Attributes: ``value`` the optimal norm (inf when infeasible, nan when the solver fails); ``W (d, d)`` (primal form
    only, else None); ``dual (n, T)`` multipliers of the rows against the first selected token, zero there;
    ``status`` in cvxpy's words; ``solver`` and ``form`` as asked.
    """

    value: float
    W: torch.Tensor | None
    dual: torch.Tensor | None
    status: str
    solver: str
    form: str


def reference_svm(X, z, mask, norm="fro", solver="clarabel", form="primal", accuracy=None) -> Reference:
    r"""Solve one attention SVM through cvxpy, in the variables of its definition.

    .. math:: \text{primal:}\quad \min_W |W| \ \text{ s.t. }\ (x_{i\tau}-x_{it})^\top W z_i \ge 1\ (t \notin O_i),\
        = 0\ (t \in O_i)
        \qquad \text{dual:}\quad \max \sum_{t \notin O_i} \lambda_{it} \ \text{ s.t. }\
        |\textstyle\sum \lambda_{it} (x_{i\tau}-x_{it}) z_i^\top|_{dual} \le 1

    Parameters
    ----------
    X : array_like (n, T, d)
        Tokens of one problem.
    z : array_like (n, d)
        Queries.
    mask : array_like of bool (n, T)
        Selected tokens :math:`O_i`, at least one in every sequence; :math:`\tau` is the first.
    norm : {"fro", "nuc"}
    solver : {"clarabel", "scs"}
        An interior point and a splitting method.
    form : {"primal", "dual"}
    accuracy : float, optional
        The solver's tolerance; None leaves its default.

    Returns
    -------
    Reference

    Raises
    ------
    ImportError
        If cvxpy is not installed, naming the extra that has it.
    TypeError, ValueError
        For bad input.
    """
    try:
        import cvxpy as cp
    except ImportError:
        raise ImportError('the referee needs cvxpy: pip install "attncore[book]"') from None
    one_of(norm, "norm", ("fro", "nuc"))
    one_of(solver, "solver", SOLVERS)
    one_of(form, "form", ("primal", "dual"))
    A, equal, place = _written_out(X, z, mask)
    d = int(np.sqrt(A.shape[1]))
    if form == "primal":
        variable = cp.Variable((d, d))
        image = A @ cp.vec(variable, order="C")
        constraints = [image[~equal] >= 1] * bool((~equal).any()) + [image[equal] == 0] * bool(equal.any())
        objective = cp.Minimize(cp.norm(variable, norm))
    else:
        variable = cp.Variable(len(A))
        pulled = cp.reshape(A.T @ variable, (d, d), order="C")
        constraints = [cp.norm(pulled, "fro" if norm == "fro" else 2) <= 1]
        constraints += [variable[~equal] >= 0] * bool((~equal).any())
        objective = cp.Maximize(cp.sum(variable[~equal]))
    problem = cp.Problem(objective, constraints)
    with warnings.catch_warnings():
        # cvxpy warns of inaccurate answers; the status says so as well.
        warnings.simplefilter("ignore", UserWarning)
        try:
            problem.solve(solver=solver.upper(), **_options(solver, accuracy))
        except cp.SolverError:
            return Reference(np.nan, None, None, "solver error", solver, form)
    return _read(problem, variable, constraints, A, equal, place, np.shape(mask), form, solver)


def _read(problem, variable, constraints, A, equal, place, shape, form, solver) -> Reference:
    infeasible = problem.status.startswith(("infeasible", "unbounded"))
    if variable.value is None or infeasible:
        return Reference(np.inf if infeasible else np.nan, None, None, problem.status, solver, form)
    weights = np.zeros(len(A))
    if form == "dual":
        weights[:] = variable.value
    else:
        parts = iter(constraints)
        if (~equal).any():
            weights[~equal] = next(parts).dual_value
        if equal.any():
            weights[equal] = -next(parts).dual_value
    dual = torch.zeros(shape, dtype=torch.float64)
    dual.reshape(-1)[place] = torch.from_numpy(weights)
    W = torch.from_numpy(np.array(variable.value)) if form == "primal" else None
    return Reference(float(problem.value), W, dual, problem.status, solver, form)


def _options(solver: str, accuracy: float | None) -> dict:
    if accuracy is None:
        return {}
    if solver == "scs":
        return {"eps_abs": accuracy, "eps_rel": accuracy, "max_iters": 200_000}
    return {"tol_gap_abs": accuracy, "tol_gap_rel": accuracy, "tol_feas": accuracy}


def _written_out(X, z, mask):
    """Matrices ``(x_first - x_t) z^T`` one a row, which are equations, and their places in a flat (n, T) array."""
    X, z = (as_tensor(value, name).to("cpu", torch.float64).numpy() for value, name in ((X, "X"), (z, "z")))
    mask = np.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"mask must be boolean, got dtype {mask.dtype}")
    if X.ndim != 3 or z.shape != (X.shape[0], X.shape[2]) or mask.shape != X.shape[:2]:
        shapes = X.shape, z.shape, mask.shape
        raise ValueError(f"X, z and mask must have shapes (n, T, d), (n, d), (n, T), got {shapes}")
    if X.shape[1] < 2 or not mask.any(1).all():
        raise ValueError("mask must select a token in every sequence, of two or more, got one without")
    place = [(i, t) for i in range(len(X)) for t in range(X.shape[1]) if t != mask[i].argmax()]
    A = np.array([np.outer(X[i, mask[i].argmax()] - X[i, t], z[i]).ravel() for i, t in place])
    return A, np.array([mask[i, t] for i, t in place]), [i * X.shape[1] + t for i, t in place]
