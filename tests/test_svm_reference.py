"""The referee: its forms and solvers agree with each other, with closed forms, and with the certified solvers."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attncore.data import token_selection
from attncore.svm import attention_svm, attention_svm_multi
from attncore.svm.reference import SOLVERS, reference_svm

RECORDS = json.loads((Path(__file__).parent / "oracles" / "svm.json").read_text())
CLOSED = [record for record in RECORDS if record["name"].startswith("closed")]
HULL = next(record for record in RECORDS if record["name"].startswith("infeas_hull"))


def one_hot(record):
    return np.arange(len(record["X"][0])) == np.array(record["selected"])[:, None]


@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("norm", ["fro", "nuc"])
@pytest.mark.parametrize("record", CLOSED, ids=lambda record: record["name"])
def test_closed_forms(record, norm, solver, form):
    found = reference_svm(record["X"], record["z"], one_hot(record), norm, solver, form)
    assert found.value == pytest.approx(record[norm]["value"], rel=1e-3)
    assert found.status.startswith("optimal") and (found.solver, found.form) == (solver, form)
    assert (found.W is None) == (form == "dual")


@pytest.mark.parametrize("norm", ["fro", "nuc"])
@pytest.mark.parametrize("several", [False, True])
def test_forms_solvers_and_our_own_agree(norm, several):
    data = token_selection(3, 4, 6, seed=5)
    mask = np.zeros((3, 4), bool)
    mask[:, 0] = True
    mask[0, 1] = several
    if several:
        ours = attention_svm_multi(data.X, data.z, mask, norm)
    else:
        ours = attention_svm(data.X, data.z, [0, 0, 0], norm)
    for solver in SOLVERS:
        for form in ("primal", "dual"):
            found = reference_svm(data.X, data.z, mask, norm, solver, form, accuracy=1e-7)
            assert found.value == pytest.approx(float(ours.value), rel=2e-6), (solver, form)
            # cvxpy minimises the norm itself: its multipliers sum to the value, in either norm.
            assert float(found.dual[~np.array(mask)].sum()) == pytest.approx(float(ours.value), rel=1e-4)
            scaled = ours.dual / (float(ours.value) if norm == "fro" else 1.0)
            np.testing.assert_allclose(found.dual, scaled, atol=1e-3 * float(scaled.max()))


@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_infeasible_problems_have_an_infinite_value(solver, form):
    found = reference_svm(HULL["X"], HULL["z"], one_hot(HULL), "fro", solver, form)
    assert found.value == np.inf and found.W is None


def test_bad_input_is_named():
    X, z = np.zeros((2, 3, 4)), np.zeros((2, 4))
    mask = np.array([[True, False, False]] * 2)
    with pytest.raises(ValueError, match="solver must be one of 'clarabel', 'scs'"):
        reference_svm(X, z, mask, solver="mosek")
    with pytest.raises(ValueError, match="form must be one of"):
        reference_svm(X, z, mask, form="bidual")
    with pytest.raises(ValueError, match="X, z and mask must have shapes"):
        reference_svm(X, z, mask[:1])
    with pytest.raises(ValueError, match="mask must select a token"):
        reference_svm(X, z, mask & False)
    with pytest.raises(TypeError, match="mask must be boolean"):
        reference_svm(X, z, mask.astype(int))


def test_without_cvxpy_the_extra_is_named():
    script = (
        "import sys; sys.modules['cvxpy'] = None\n"
        "from attncore.svm.reference import reference_svm\n"
        "try: reference_svm([[[1., 0.], [0., 0.]]], [[1., 0.]], [[True, False]])\n"
        "except ImportError as error: assert 'attncore[book]' in str(error)\n"
        "else: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
