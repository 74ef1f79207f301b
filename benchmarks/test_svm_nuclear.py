"""Nuclear attention SVMs, certified to 1e-9 or better, against cvxpy's default solver at its own accuracy.

Both sides start from the tokens. The opponent is given its constraints as one matrix, which is kinder than one
constraint a token; its accuracy is what its defaults give, written down beside the time.
"""

import itertools
import sys
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from rows import seconds

from attncore.data import token_selection
from attncore.svm import Status, attention_svm, attention_svm_multi

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from svm_problems import separable  # noqa: E402


def selection(n, T, d, batch=()):
    """Unit-norm tokens and queries with the first token selected: feasible, since unit tokens are vertices."""
    data = token_selection(n, T, d, seed=1, batch=batch)
    return data.X.numpy(), data.z.numpy(), np.zeros((*batch, n), dtype=int)


def by_default(X, z, several=0):
    """cvxpy with every default: W. The first `several` other tokens are equations."""
    n, T, d = X.shape
    A = ((X[:, :1] - X[:, 1:])[..., None] * z[:, None, None, :]).reshape(n, T - 1, d * d)
    W = cp.Variable((d, d))
    image = A[:, several:].reshape(-1, d * d) @ cp.vec(W, order="C")
    constraints = [image >= 1]
    if several:
        constraints.append(A[:, :several].reshape(-1, d * d) @ cp.vec(W, order="C") == 0)
    cp.Problem(cp.Minimize(cp.normNuc(W)), constraints).solve()
    return W.value


def error(X, z, W, value) -> float:
    """Relative excess of W, scaled to be feasible, over the certified value."""
    least = ((X[:, :1] - X[:, 1:]) @ W @ z[:, :, None]).min()
    return np.linalg.norm(W, "nuc") / least / value - 1


OPPONENT = "cvxpy, its default solver"


@pytest.mark.parametrize(("shape", "bar"), [((6, 8, 10), 3), ((15, 5, 20), 2), ((10, 20, 50), 8)],
                         ids=["6-8-10", "15-5-20", "10-20-50"])
def test_one_nuclear_problem_against_the_default(row, shape, bar):
    """Certified to 1e-9; bars 3, 2, 8 times, aim 10 times each."""
    X, z, selected = selection(*shape)
    found = row.in_turns(
        f"Nuclear SVM, one problem {shape}", "1 problem", lambda: attention_svm(X, z, selected, norm="nuc"),
        {OPPONENT: (lambda: by_default(X, z), 1.0)}, rounds=12)
    gap = float(found[None].gap)
    row.record["opponents"][OPPONENT]["gap"] = error(X, z, found[OPPONENT], float(found[None].value))
    row.measure(gap=gap)
    row.bar("times faster than cvxpy", row.times(), at_least=bar)
    row.bar("times faster than cvxpy", row.times(), at_least=10, aim=True)
    row.bar("certified gap", gap, at_most=1e-9)
    assert gap <= 1e-9


def test_fifty_nuclear_problems_at_once(row):
    """A batch is a loop over its problems: what it saves is the overhead of calls."""
    X, z, selected = selection(6, 8, 10, batch=(50,))
    turn = itertools.cycle(range(50))

    def one_by_default():
        k = next(turn)
        return by_default(X[k], z[k])

    found = row.in_turns("Nuclear SVM, 50 problems (6, 8, 10)", "50 problems",
                         lambda: attention_svm(X, z, selected, norm="nuc"), {OPPONENT: (one_by_default, 1 / 50)})
    gap = float(found[None].gap.max())
    row.measure(gap=gap)
    row.bar("largest certified gap", gap, at_most=1e-9)
    assert gap <= 1e-9


def test_one_problem_with_several_tokens(row):
    """Two tokens selected in each of six sequences."""
    X, z, _ = selection(6, 8, 16)
    mask = np.zeros((6, 8), bool)
    mask[:, :2] = True
    found = row.in_turns("Nuclear SVM, two tokens a sequence, (6, 8, 16)", "1 problem",
                         lambda: attention_svm_multi(X, z, mask, norm="nuc"),
                         {OPPONENT: (lambda: by_default(X, z, several=1), 1.0)}, rounds=6)
    row.measure(gap=float(found[None].gap))
    row.bar("certified gap", float(found[None].gap), at_most=1e-9)
    assert found[None].gap <= 1e-9


def test_three_hard_sets(row):
    """300 problems whose sequences compete or whose tokens crowd; verdicts are judged by linear programming."""
    judged = []
    for shape in ((6, 8, 4), (15, 5, 6), (4, 6, 2)):
        n, T, d = shape
        rng = np.random.default_rng(shape)
        X, z, selected = rng.normal(size=(100, n, T, d)), rng.normal(size=(100, n, d)), rng.integers(0, T, (100, n))
        selected[:50] = np.einsum("bntd,bd->bnt", X[:50], rng.normal(size=(50, d))).argmax(-1)  # of a linear head
        judged.append((X, z, selected, np.array([separable(*one) for one in zip(X, z, selected, strict=True)])))

    def run():
        spent, solved = seconds(lambda: [attention_svm(*problems, norm="nuc") for *problems, _ in judged])
        return spent, solved

    _, solved = row.alone("Nuclear SVM, three hard sets", "300 problems", run)
    wrong = sum(int(((s.status == Status.INFEASIBLE).numpy() == feasible).sum())
                for s, (*_, feasible) in zip(solved, judged, strict=True))
    feasible = sum(int(f.sum()) for *_, f in judged)
    certified = sum(int((s.status == Status.OPTIMAL).sum()) for s in solved)
    row.measure(feasible=feasible, certified=certified)
    row.bar("share of the feasible ones certified to 1e-9", certified / feasible, at_least=1)
    row.bar("wrong verdicts", wrong, at_most=0)
    assert certified == feasible and wrong == 0
