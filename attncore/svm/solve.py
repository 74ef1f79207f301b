"""The entry point `attention_svm`: choose a solver, certify its answer, say what happened."""

from __future__ import annotations

import numpy as np

from attncore.svm import frobenius, nuclear
from attncore.svm.assess import package
from attncore.svm.constraints import Constraints, assemble, check
from attncore.svm.solution import InfeasibleError, Solution, Status
from attncore.validation import one_of, real


def attention_svm(X, z, selected, norm="fro", tol=1e-9) -> Solution:
    r"""Solve the attention SVM for a choice of one token per sequence.

    .. math:: \min_W |W| \quad\text{subject to}\quad
        (x_{i,a_i} - x_{it})^\top W z_i \ge 1 \quad (t \ne a_i,\ i = 1..n), \qquad a = \text{selected}

    with the Frobenius norm (solution :math:`W^{mm}`) or the nuclear norm.

    Parameters
    ----------
    X : array_like (..., n, T, d)
        Tokens.
    z : array_like (..., n, d)
        Queries. Leading axes of the three arguments are batch axes and broadcast.
    selected : array_like of int (..., n)
        The chosen token of each sequence, counted from 0.
    norm : {"fro", "nuc"}
    tol : float
        Relative gap below which a solution counts as OPTIMAL. Any scale: the data are rescaled first.

    Returns
    -------
    Solution
        Solved in float64; rounded to the dtype of the inputs, on their device.

    Raises
    ------
    InfeasibleError
        Without batch axes, when no W satisfies the constraints. In a batch the status says so instead.
    TypeError, ValueError
        For bad input. T = 1 is valid (W = 0, value 0); ``z_i = 0`` or a selected token inside the convex hull
        of the others is infeasible, not bad input.

    Notes
    -----
    **Which solver, and why.** The choice is by size; every answer is accepted on its certified gap alone, and
    what one method leaves uncertified goes to the next.

    Let m = n (T - 1) be the number of constraints and p the number of coordinates of W in
    span(differences) x span(queries), where every minimiser lives.

    * *Small* (m p min(m, p) <= 1e8) *and* m <= p: the dual, whose Gram matrix costs little, by DAQP, an exact
      active-set method, on the rows that ten first-order steps leave in doubt; then on all rows.
    * *Small and* m > p, or the Gram matrix is singular (copies of tokens, dependent queries): DAQP on the primal
      in reduced coordinates, for which rank is no obstacle. Points that rounding spoils (nearly infeasible,
      bounds many orders of magnitude apart) are recomputed from their active rows, or lifted.
    * *Large*: a matrix-free primal-dual active set method, with conjugate gradients preconditioned sequence by
      sequence; no m x m matrix is formed. Where it does not settle, DAQP on the data compressed to their numerical
      rank if that makes them small, else the method of multipliers with a globalised Newton method.
    * *Infeasible*: non-negative least squares (small) or the diverging multipliers (large) give the Farkas
      certificate. The rest of the batch is solved.
    * *"nuc"*: the Frobenius solution settles feasibility and starts a primal-dual interior point method in reduced
      coordinates; once its gap is below 6 % (0.1 % above 600 rows), Newton's method on the active face (rank and
      tight rows) is tried after every step, and usually ends it within four to ten steps, at rounding. A gap still
      above `tol` goes to Clarabel on the dual, if that is installed (extra ``book``). One problem after another: a
      batch in step through stacked linear algebra was not faster. Memory and time grow as m^2 and m^3: up to a few
      thousand constraints. The minimiser need not be unique; `Solution.unique` says what is proved.

    Batches of small problems are shared between ``torch.get_num_threads()`` threads. The work is done on the CPU,
    in float64, whatever the device and dtype of the inputs.

    References
    ----------
    Ataee Tarzanagh, Li, Thrampoulidis, Oymak, *Transformers as Support Vector Machines*, arXiv 2308.16898,
    the attention SVM; the dual and the two-sided bound are derived in the book.

    Examples
    --------
    One sequence, selected token (2, 0), other token (0, 0), query (1, 0): W = e_1 e_1^T / 2.

    >>> solution = attention_svm([[[2.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0]], [0])
    >>> solution.W.tolist(), float(solution.value), float(solution.margin)
    ([[0.5, 0.0], [0.0, 0.0]], 0.5, 2.0)
    """
    X, z, selected = check(X, z, selected)
    one_of(norm, "norm", ("fro", "nuc"))
    tol = real(tol, "tol", above=0)
    rows = assemble(X, z, selected)
    solution = package(rows, *solve_rows(rows, norm, tol), norm, tol, X)
    if solution.status.ndim == 0 and int(solution.status) == Status.INFEASIBLE:
        raise InfeasibleError(
            f"no W separates the selected tokens {selected.tolist()} from the others: the weights in .certificate "
            "combine the constraints to 0 >= 1; select other tokens or raise the dimension d",
            solution.certificate,
        )
    return solution


def solve_rows(rows: Constraints, norm: str, tol: float) -> tuple[np.ndarray, ...]:
    """Solve a flat batch: ``W (B, d, d)``, dual weights, Farkas weights (nan where feasible), both (B, n, T-1), unique.

    The last, (B,), is 1 where the minimiser is proved unique, 0 where it is proved not to be, else -1.
    """
    if not rows.u.shape[2]:
        none = np.zeros(rows.u.shape[:3])
        return rows.combine(none), none, none, np.ones(len(rows), np.int8)
    best = frobenius.solve(rows, tol)
    if norm == "nuc":
        best = nuclear.solve(rows, tol, best)
    return best.W, best.weights, best.proof, best.unique
