"""Frobenius attention SVMs against cvxpy and the QP libraries, in the same run, on one core.

Opponents: the published way (cvxpy, one constraint at a time) on small problems; every QP library that can be
imported, on the dual with its Gram matrix built beforehand and not counted, on larger ones. PIQP and ProxQP are
no dependency of this repository: ``pip install piqp proxsuite`` brings them into the comparison.
"""

import itertools
import sys
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from fresh_process import run_fresh
from rows import seconds

from attncore.data import token_selection
from attncore.svm import InfeasibleError, Status, attention_svm

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from svm_problems import KINDS, problem, separable  # noqa: E402

ACCURATE = 1e-6  # a library counts as an opponent when it reaches this gap


def selection(n, T, d, batch=()):
    """Unit-norm tokens and queries with the first token selected: feasible, since unit tokens are vertices."""
    data = token_selection(n, T, d, seed=1, batch=batch)
    return data.X.numpy(), data.z.numpy(), np.zeros((*batch, n), dtype=int)


def published(X, z, selected):
    """One cvxpy constraint per token, the default solver: how the experiments of the paper are written."""
    n, T, d = X.shape
    W = cp.Variable((d, d))
    constraints = []
    for i in range(n):
        for t in range(T):
            if t != selected[i]:
                constraints.append((X[i, selected[i]] - X[i, t]) @ W @ z[i] >= 1)
    cp.Problem(cp.Minimize(cp.norm(W, "fro")), constraints).solve()
    return W.value


def dual_program(X, z, selected):
    """Gram matrix and right-hand side of ``min lam^T G lam / 2 - b^T lam`` over ``lam >= 0``, rows of unit norm."""
    own = np.take_along_axis(X, selected[:, None, None], 1)
    u = (own - X)[np.arange(X.shape[1]) != selected[:, None]]
    size = np.linalg.norm(u, axis=1)
    u, owner = u / size[:, None], np.repeat(np.arange(len(z)), X.shape[1] - 1)
    return (u @ u.T) * (z @ z.T)[np.ix_(owner, owner)], size.min() / size


def with_daqp(G, b):
    import daqp

    m = len(b)
    return daqp.solve(G, -b, np.zeros((0, m)), np.full(m, 1e30), np.zeros(m))[0]


def with_piqp(G, b):
    import piqp

    solver, m = piqp.DenseSolver(), len(b)
    solver.settings.eps_abs = solver.settings.eps_rel = solver.settings.eps_duality_gap_rel = 1e-11
    solver.setup(P=G, c=-b, x_l=np.zeros(m), x_u=np.full(m, np.inf))
    solver.solve()
    return solver.result.x


def with_proxqp(G, b):
    import proxsuite

    m = len(b)
    program = proxsuite.proxqp.dense.QP(m, 0, 0, True)
    program.settings.eps_abs, program.settings.eps_rel = 1e-10, 0.0
    program.init(G, -b, None, None, None, None, None, np.zeros(m), np.full(m, 1e20))
    program.solve()
    return program.results.x


def with_clarabel(G, b):
    import clarabel
    from scipy import sparse

    settings, m = clarabel.DefaultSettings(), len(b)
    settings.verbose = False
    program = [sparse.csc_matrix(np.triu(G)), -b, -sparse.identity(m, format="csc"), np.zeros(m)]
    return np.array(clarabel.DefaultSolver(*program, [clarabel.NonnegativeConeT(m)], settings).solve().x)


def with_osqp(G, b):
    import osqp
    from scipy import sparse

    m, solver = len(b), osqp.OSQP()
    solver.setup(sparse.csc_matrix(np.triu(G)), -b, sparse.identity(m, format="csc"), np.zeros(m), np.full(m, np.inf),
                 verbose=False, eps_abs=1e-9, eps_rel=1e-9, max_iter=20_000)
    return solver.solve(raise_error=False).x


LIBRARIES = {"DAQP": with_daqp, "PIQP": with_piqp, "ProxQP": with_proxqp, "Clarabel": with_clarabel, "OSQP": with_osqp}


def dual_gap(G, b, lam) -> float:
    lam = np.maximum(lam, 0.0)
    image = G @ lam
    return 1.0 - (b @ lam) * (image / b).min() / (lam @ image)


def importable(names) -> list[str]:
    """The libraries among `names` that are installed."""
    tiny, found = (np.eye(2), np.ones(2)), []
    for name in names:
        try:
            LIBRARIES[name](*tiny)
        except ImportError:
            continue
        found.append(name)
    return found


def test_hundred_small_problems_against_the_published_way(row):
    """100 problems (6, 8, 10): gap <= 1e-12."""
    X, z, selected = selection(6, 8, 10, batch=(100,))
    programs = [dual_program(X[k], z[k], selected[k]) for k in range(100)]
    turn = itertools.cycle(range(100))

    def one_published():
        k = next(turn)
        return k, np.linalg.norm(published(X[k], z[k], selected[k]))

    found = row.in_turns(
        "Frobenius SVM, 100 problems (6, 8, 10)", "100 problems",
        lambda: attention_svm(X, z, selected),
        {"cvxpy, constraint by constraint": (one_published, 1 / 100)},
        {"DAQP alone: Gram matrices given, nothing certified": (
            lambda: [with_daqp(G, b) for G, b in programs], 1.0)},
        rounds=15,
    )
    k, value = found["cvxpy, constraint by constraint"]
    assert value == pytest.approx(float(found[None].value[k]), rel=1e-4)
    gap = float(found[None].gap.max())
    row.measure(gap=gap)
    row.bar("times faster than cvxpy", row.times(), at_least=450)
    row.bar("times faster than cvxpy", row.times(), at_least=1000, aim=True)
    row.bar("largest certified gap", gap, at_most=1e-12)
    assert gap <= 1e-12


@pytest.mark.parametrize(("shape", "names", "rounds", "bars"), [
    ((20, 16, 64), tuple(LIBRARIES), 5, []),
    ((100, 32, 128), ("PIQP", "ProxQP"), 2, [10, 20]),
], ids=["20-16-64", "100-32-128"])
def test_one_problem_against_the_libraries(row, shape, names, rounds, bars):
    """(100, 32, 128): gap <= 1e-10. DAQP, Clarabel and OSQP are slower by far there: Clarabel stands in for none."""
    problem = selection(*shape)
    names = importable(names) or ["Clarabel"]
    G, b = dual_program(*problem)
    found = row.in_turns(
        f"Frobenius SVM, one problem {shape}", "1 problem", lambda: attention_svm(*problem),
        {name: (lambda solve=LIBRARIES[name]: solve(G, b), 1.0) for name in names}, rounds=rounds,
    )
    for name, side in row.record["opponents"].items():
        side["gap"] = float(dual_gap(G, b, found[name]))
    accurate = [name for name, side in row.record["opponents"].items() if side["gap"] <= ACCURATE]
    row.measure(gap=float(found[None].gap))
    for asked, aim in zip(bars, (False, True), strict=False):
        row.bar("times faster than the best accurate library", row.times(accurate), at_least=asked, aim=aim)
    row.bar("certified gap", float(found[None].gap), at_most=1e-10)
    assert found[None].gap <= 1e-10


FRESH = """
from attncore.data import token_selection
from attncore.svm import attention_svm
data = token_selection(*map(int, sys.argv[1:]), seed=1)
start = time.process_time()
solution = attention_svm(data.X, data.z, [0] * int(sys.argv[1]))
print(time.process_time() - start, peak(), float(solution.gap))
"""


@pytest.mark.parametrize(("shape", "most"), [((500, 32, 256), 2.0), ((1000, 32, 256), 5.0)],
                         ids=["500-32-256", "1000-32-256"])
def test_large_problems_in_a_fresh_process(row, shape, most):
    """Processor time and peak memory of a process of its own, imports counted in the memory."""
    spent, peak, gap = row.alone(
        f"Frobenius SVM, one problem {shape}", "1 problem", lambda: min(run_fresh(FRESH, *shape) for _ in range(3)))
    row.measure(gap=gap, peak_MiB=peak)
    row.bar("seconds of processor time", spent, at_most=most)
    row.bar("peak memory with imports, MiB", peak, at_most=1024)
    row.bar("certified gap", gap, at_most=1e-10)
    assert gap <= 1e-10


def test_a_thousand_random_problems_half_of_them_degenerate(row):
    """500 plain ones, 500 with copies, low rank, scales apart, ...: each certified, or proved infeasible, rightly."""
    others = [kind for kind in KINDS if kind != "plain"]
    problems = [problem("plain", seed) for seed in range(500)]
    problems += [problem(others[k % len(others)], k // len(others)) for k in range(500)]

    def solve(data):
        try:
            return int(attention_svm(*data).status)
        except InfeasibleError:
            return int(Status.INFEASIBLE)

    _, found = row.alone("Frobenius SVM, 1000 random problems, half of them degenerate", "1000 problems",
                         lambda: seconds(lambda: [solve(data) for data in problems]))
    wrong = sum((status == Status.INFEASIBLE) == separable(*data)
                for status, data in zip(found, problems, strict=True))
    row.measure(infeasible=found.count(int(Status.INFEASIBLE)))
    row.bar("wrong, by linear programming", wrong, at_most=0)
    row.bar("neither certified to 1e-9 nor proved infeasible", found.count(int(Status.APPROXIMATE)), at_most=0)
