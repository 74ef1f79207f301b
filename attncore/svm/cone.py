"""The cone of directions around a local SVM direction in which no rival comes near."""

from __future__ import annotations

import math

import torch

from attncore.svm.constraints import check, differences, margins, others
from attncore.svm.local import local_optimality, solve_marked
from attncore.svm.solution import Solution
from attncore.validation import as_tensor


def local_cone(X, z, scores, selected, tol=1e-6, solution: Solution | None = None) -> torch.Tensor:
    r"""Opening of the cone of a locally optimal selection, as an angle from its Frobenius SVM direction.

    With :math:`D_{it} = (x_{i,a_i} - x_{it}) z_i^\top`, a = selected, and :math:`m^* = 1/|W^{mm}_a|_F`, the
    largest margin of a matrix of norm one, the opening is the supremum of the angles :math:`\varphi < \pi/2` such that
    every W of norm one within :math:`\varphi` of :math:`W^{mm}_a` has

    .. math:: \langle D_{it}, W\rangle > 0 \quad (t \ne a_i), \qquad
        \langle D_{it}, W\rangle > m^* \quad\text{for every rival, } \gamma_{it} \ge \gamma_{i,a_i}.

    With :math:`\theta_{it}` the angle between :math:`D_{it}` and :math:`W^{mm}_a` it is the least of
    :math:`\pi/2 - \theta_{it}` over all tokens and :math:`\arccos(m^*/|D_{it}|) - \theta_{it}` over the rivals.

    Parameters
    ----------
    X, z, scores, selected, tol
        As in `local_optimality`.
    solution : Solution, optional
        Frobenius solution of the same problems, to save solving them again.

    Returns
    -------
    Tensor (...)
        Radians, from 0 to pi/2; 0 where the selection is not locally optimal or cannot be separated.

    Raises
    ------
    TypeError, ValueError
        For bad input, also a `solution` of another norm.

    References
    ----------
    Ours. The cone theorem of arXiv 2308.16898 has a cone of some unspecified opening.

    Examples
    --------
    The far token is a rival, but so far away that the cone may open until its gap falls to the SVM's own.

    >>> X = [[[2.0, 0.0], [0.0, 0.0], [-9.0, 0.0]]]
    >>> round(float(local_cone(X, [[1.0, 0.0]], [[1.0, 0.0, 5.0]], [0])), 4)  # arccos(2 / 11)
    1.388
    """
    X, z, selected = check(X, z, selected)
    scores = as_tensor(scores, "scores", device=X.device)
    if solution is None:
        solution = solve_marked(X, z, selected, "fro")
    judged = local_optimality(X, z, scores, selected, tol=tol, solution=solution)
    if solution.norm != "fro":
        raise ValueError(f"solution must be one of norm 'fro', got norm {solution.norm!r}")
    feasible = judged.feasible
    value = torch.where(feasible, solution.value, 1.0)[..., None, None]
    length = differences(X, selected).norm(dim=-1) * z.norm(dim=-1)[..., None]
    gap = margins(torch.where(feasible[..., None, None], solution.W, 0.0), X, z, selected) / value
    other = others(selected, X.shape[-2])
    rival = other & (scores >= scores.gather(-1, selected[..., None]))
    angle, limit = (_arccos(ratio, length) for ratio in (gap, 1 / value))
    room = torch.where(rival, limit, math.pi / 2) - angle
    opening = room.masked_fill(~other, math.pi / 2).amin((-2, -1)).clamp(min=0.0)
    return torch.where(feasible & ~(judged.support & rival).any(-1).any(-1), opening, 0.0)


def _arccos(part, whole) -> torch.Tensor:
    """Arc cosine of ``part / whole``, both clipped to where it exists; zero length gives a right angle."""
    return torch.arccos((part / torch.where(whole > 0, whole, torch.inf)).clamp(-1.0, 1.0))
