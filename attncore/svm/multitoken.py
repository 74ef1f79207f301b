"""Attention SVMs that select several tokens a sequence, and the finite part that goes with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.linalg import qr

from attncore.geometry import correlation
from attncore.svm import nuclear
from attncore.svm.assess import package
from attncore.svm.constraints import Constraints, assemble, check
from attncore.svm.frobenius import Best
from attncore.svm.infeasibility import farkas_of
from attncore.svm.quadratic import least_norm, least_squares, sharpen
from attncore.svm.solution import InfeasibleError, Solution, Status
from attncore.validation import as_tensor, common, one_of, real

DEPENDENT = 1e-11


def attention_svm_multi(X, z, mask, norm="fro", tol=1e-9) -> Solution:
    r"""Solve the attention SVM that selects the tokens of a mask, several a sequence if need be.

    .. math:: \min_W |W| \quad\text{subject to}\quad
        (x_{i\tau} - x_{it})^\top W z_i \begin{cases} = 0 & t \in O_i \\ \ge 1 & t \notin O_i \end{cases}
        \qquad (\tau \in O_i,\ i = 1..n)

    Attention along :math:`R\,W` tends to the selected sets :math:`O_i` and stays uniform within them; what it is
    within them in the end is the business of the finite part, see `finite_part`.

    Parameters
    ----------
    X : array_like (..., n, T, d)
        Tokens.
    z : array_like (..., n, d)
        Queries.
    mask : array_like of bool (..., n, T)
        The selected tokens; at least one in every sequence.
    norm : {"fro", "nuc"}
    tol : float
        Relative gap below which a solution counts as OPTIMAL.

    Returns
    -------
    Solution
        As for `attention_svm`. Rows are taken against the *first* selected token of each sequence: its dual
        variable is 0, those of the other selected tokens have any sign, those outside are >= 0. The sums
        in the documentation of `Solution` are over the tokens outside. `max_violation` counts the
        equations too. With nothing outside the mask W = 0.

    Raises
    ------
    InfeasibleError
        Without batch axes, when no W satisfies the constraints; the certificate's entries outside the mask are
        non-negative and sum to one.
    TypeError, ValueError
        For bad input: a mask that is not boolean, a sequence without selected token, shapes that do not match.

    Notes
    -----
    The equations are eliminated: inequalities are projected off their span, then solved as in `attention_svm`
    (DAQP on the primal in reduced coordinates). The nuclear norm keeps them as rows with multipliers of any sign.
    Problem after problem, written out: meant for up to some hundred rows.

    References
    ----------
    Ataee Tarzanagh, Li, Thrampoulidis, Oymak, arXiv 2308.16898, the SVM for general heads.

    Examples
    --------
    Tokens e_1, e_2 selected, 0 not: both must lie one above 0.

    >>> solution = attention_svm_multi([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], [[1.0, 0.0]], [[True, True, False]])
    >>> (solution.W + 0.0).round(decimals=12).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    X, z, mask = _check(X, z, mask)
    one_of(norm, "norm", ("fro", "nuc"))
    tol = real(tol, "tol", above=0)
    rows = _rows(X, z, mask)
    solution = package(rows, *_solve(rows, norm, tol), norm, tol, X)
    if solution.status.ndim == 0 and int(solution.status) == Status.INFEASIBLE:
        raise InfeasibleError(
            "no W puts the selected tokens level and above the others: the weights in .certificate combine the "
            "constraints to 0 >= 1; select other tokens or raise the dimension d",
            solution.certificate,
        )
    return solution


def _check(X, z, mask):
    mask = torch.as_tensor(mask)
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean, got dtype {mask.dtype}")
    X, z = common(X=X, z=z)
    if X.ndim < 3 or mask.ndim < 2 or mask.shape[-2:] != X.shape[-3:-1]:
        raise ValueError(f"mask must have shape (..., n, T) to match X {tuple(X.shape)}, got {tuple(mask.shape)}")
    if not bool(mask.any(-1).all()):
        empty = (~mask.any(-1)).nonzero()[0].tolist()
        raise ValueError(f"mask must select a token in every sequence, got none in sequence {empty}")
    mask = mask.to(X.device)
    X, z, first = check(X, z, mask.to(torch.int8).argmax(-1))
    return X, z, mask.expand(*first.shape, mask.shape[-1])


def _rows(X, z, mask) -> Constraints:
    rows = assemble(X, z, mask.to(torch.int8).argmax(-1))
    return replace(rows, equal=rows.collect(mask.cpu().numpy().reshape(-1, *mask.shape[-2:])))


def _solve(rows: Constraints, norm: str, tol: float):
    """As `solve_rows`; the Farkas weights of equations have any sign."""
    plain, best = Best(rows), Best(rows, norm)
    for k in range(len(rows)):
        if rows.equal[k].all():
            plain.gap[k], plain.unique[k] = 0.0, 1
            best.unique[k] = 1
            continue
        written = _Written.of(rows, k)
        written.frobenius(plain)
        if norm == "nuc":
            best.proof[k] = plain.proof[k]
            if plain.gap[k] < 1:
                nuclear.solve_one(nuclear.Reduced(rows, k, plain, written.implied), plain, best, tol)
    found = plain if norm == "fro" else best
    return found.W, found.weights, found.proof, found.unique


@dataclass(frozen=True)
class _Written:
    """Problem k in reduced coordinates: rows ``A (m, p q)``, which are equations, an orthonormal basis of those."""

    k: int
    A: np.ndarray
    equal: np.ndarray
    implied: np.ndarray
    basis: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, rows: Constraints, k: int) -> _Written:
        u, left = nuclear.coordinates(rows.u[k].reshape(-1, rows.u.shape[-1]))
        z, right = nuclear.coordinates(rows.z[k])
        A = (u[:, :, None] * z.repeat(rows.u.shape[2], 0)[:, None, :]).reshape(len(u), -1)
        equal = rows.equal[k].ravel()
        implied, basis = np.zeros(len(A), bool), np.zeros((A.shape[1], 0))
        at = np.flatnonzero(equal)
        size = np.linalg.norm(A[at], axis=1)
        implied[at[size == 0]] = True
        at, size = at[size > 0], size[size > 0]
        if at.size:
            basis, triangle, order = qr((A[at] / size[:, None]).T, mode="economic", pivoting=True)
            rank = int((np.abs(np.diag(triangle)) > DEPENDENT).sum())
            implied[at[order[rank:]]] = True
            basis = basis[:, :rank]
        return cls(k, A, equal, implied, basis, left, right)

    def frobenius(self, best: Best) -> None:
        """The least-norm point off the span of the equations, or a Farkas certificate."""
        outside = self.A[~self.equal]
        projected = outside - (outside @ self.basis) @ self.basis.T
        projected -= (projected @ self.basis) @ self.basis.T
        size, whole = np.linalg.norm(projected, axis=1), np.linalg.norm(outside, axis=1)
        if not (size > DEPENDENT * whole).all() or not (whole > 0).all():
            lam = np.zeros(len(outside))
            lam[np.argmin(size / np.where(whole > 0, whole, np.inf))] = 1.0
            self._prove(lam, best)
            return
        unit, bound = projected / size[:, None], size.min() / size
        for method in (least_norm, least_squares):
            lam = method(unit, bound)
            if lam is not None:
                w, lam = sharpen(unit, bound, lam)
                self._offer(w / size.min(), lam * bound / size.min() ** 2, best)
            if best.gap[self.k] <= 1e-9:
                return
            proof = farkas_of(unit)
            if proof is not None:
                self._prove(proof / size, best)
                return

    def _complete(self, lam: np.ndarray) -> np.ndarray:
        """All multipliers: those of the equations cancel what `lam` has in their span."""
        weights, combined = np.zeros(len(self.A)), lam @ self.A[~self.equal]
        weights[~self.equal] = lam
        used = self.equal & ~self.implied
        along = self.basis @ (self.basis.T @ combined)
        weights[used] = np.linalg.lstsq(self.A[used].T, -along, rcond=None)[0]
        return weights

    def _offer(self, w, lam, best: Best) -> None:
        W = self.left @ w.reshape(self.left.shape[1], -1) @ self.right.T
        best.offer(np.array([self.k]), self._complete(lam).reshape(1, *best.weights.shape[1:]), W[None])

    def _prove(self, lam, best: Best) -> None:
        best.proof[self.k] = self._complete(lam / lam.sum()).reshape(best.proof.shape[1:])


@dataclass(frozen=True)
class FinitePart:
    """Least-norm matrix that reproduces the attention ratios within the selected sets.

    Attributes: ``W (..., d, d)``; ``residual (...)`` the largest error of a log-ratio, 0 up to rounding unless the
    ratios contradict each other (dependent tokens or queries).
    """

    W: torch.Tensor
    residual: torch.Tensor


def finite_part(X, z, mask, attention) -> FinitePart:
    r"""The finite part :math:`W_{fin}` for given attention weights within the selected sets.

    .. math:: \min_W |W|_F \quad\text{subject to}\quad
        (x_{it} - x_{i\tau})^\top W z_i = \log(s_{it} / s_{i\tau}), \qquad t, \tau \in O_i

    It lies in :math:`S = \mathrm{span}\{(x_{it} - x_{i\tau}) z_i^\top : t, \tau \in O_i\}`, to which the solution of
    `attention_svm_multi` is orthogonal. Along a regularisation path the projection on S tends to it; off S the
    remainder is only bounded.

    Parameters
    ----------
    X, z, mask
        As in `attention_svm_multi`.
    attention : array_like (..., n, T)
        Attention weights s, of any scale; positive on the mask, not read outside.

    Returns
    -------
    FinitePart

    Raises
    ------
    TypeError, ValueError
        For bad input: a weight on the mask that is not positive.

    References
    ----------
    arXiv 2308.16898, the finite part of the solution for general heads.

    Examples
    --------
    Weights 3 : 1 between e_1 and e_2.

    >>> part = finite_part([[[1.0, 0.0], [0.0, 1.0]]], [[2.0, 0.0]], [[True, True]], [[0.75, 0.25]])
    >>> (part.W * 4 / torch.log(torch.tensor(3.0))).round(decimals=6).tolist()
    [[1.0, 0.0], [-1.0, 0.0]]
    """
    X, z, mask = _check(X, z, mask)
    weights = as_tensor(attention, "attention", device=X.device).to(torch.float64)
    if weights.shape[-2:] != mask.shape[-2:]:
        raise ValueError(f"attention must have shape {tuple(mask.shape)} to match mask, got {tuple(weights.shape)}")
    weights = weights.expand(mask.shape)
    if not bool((weights[mask] > 0).all()):
        raise ValueError(f"attention must be positive on the mask, got {float(weights[mask].min())}")
    rows = _rows(X, z, mask)
    logs = torch.where(mask, weights, 1.0).log()
    first = mask.to(torch.int8).argmax(-1, keepdim=True)
    ratios = rows.collect((logs.gather(-1, first) - logs).cpu().numpy().reshape(-1, *mask.shape[-2:]))
    W, residual = np.zeros((len(rows), X.shape[-1], X.shape[-1])), np.zeros(len(rows))
    for k in range(len(rows)):
        written = _Written.of(rows, k)
        if written.equal.any():
            target = ratios[k].ravel()[written.equal] / rows.scale[k]
            A = written.A[written.equal]
            w = np.linalg.lstsq(A, target, rcond=DEPENDENT)[0]
            W[k] = written.left @ w.reshape(written.left.shape[1], -1) @ written.right.T
            residual[k] = np.abs(A @ w - target).max() * rows.scale[k]
    shape = X.shape[:-3]
    return FinitePart(torch.from_numpy(W).reshape(*shape, *W.shape[1:]).to(X),
                      torch.from_numpy(residual).reshape(shape).to(X))


@dataclass(frozen=True)
class Combination:
    """The matrix ``finite + C direction`` nearest to W; every field has the batch shape (...).

    Attributes: ``C``; ``W (..., d, d)`` the combination; ``correlation`` of W with it; ``correlation_direction``
    of W with the direction alone, what the finite part has to improve on; ``distance`` relative to W.
    """

    C: torch.Tensor
    W: torch.Tensor
    correlation: torch.Tensor
    correlation_direction: torch.Tensor
    distance: torch.Tensor


def best_combination(W, finite, direction) -> Combination:
    r"""Fit :math:`W \approx W_{fin} + C\,W^{mm}` with C free, by least squares.

    .. math:: C = \langle W - W_{fin}, W^{mm}\rangle / |W^{mm}|_F^2

    Parameters
    ----------
    W, finite, direction : array_like (..., d, d)
        A trained matrix, `finite_part` of its attention, the solution of `attention_svm_multi`.

    Returns
    -------
    Combination

    Raises
    ------
    TypeError, ValueError
        For bad input: shapes that do not broadcast, a zero direction.
    """
    W, finite, direction = common(W=W, finite=finite, direction=direction)
    try:
        W, finite, direction = torch.broadcast_tensors(W, finite, direction)
    except RuntimeError:
        shapes = [tuple(matrix.shape) for matrix in (W, finite, direction)]
        raise ValueError(f"W, finite and direction must broadcast, got shapes {shapes}") from None
    squared = direction.square().sum((-2, -1))
    if not bool((squared > 0).all()):
        raise ValueError("direction must not be zero, got a matrix of zeros")
    C = ((W - finite) * direction).sum((-2, -1)) / squared
    fitted = finite + C[..., None, None] * direction
    distance = torch.linalg.matrix_norm(W - fitted) / torch.linalg.matrix_norm(W)
    return Combination(C, fitted, correlation(W, fitted), correlation(W, direction), distance)
