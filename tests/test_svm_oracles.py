"""Attention SVMs against the reference values, the closed forms, and the referee."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attncore.svm import InfeasibleError, Status, attention_svm

ORACLES = Path(__file__).parent / "oracles" / "svm.json"
RECORDS = {record["name"]: record for record in json.loads(ORACLES.read_text())}
FEASIBLE = [name for name, r in RECORDS.items() if r["status"] == "feasible"]
INFEASIBLE = [name for name, r in RECORDS.items() if r["status"] == "infeasible"]


def as_float64(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("name", FEASIBLE)
def test_frobenius_values_weights_and_duals(name):
    record, expected = RECORDS[name], RECORDS[name]["fro"]
    solution = attention_svm(record["X"], record["z"], record["selected"])
    assert solution.status == Status.OPTIMAL
    scale = max(1.0, expected["value"])
    assert abs(float(solution.value) - expected["value"]) <= 1e-8 * scale
    torch.testing.assert_close(solution.W, as_float64(expected["W"]), rtol=0, atol=1e-8 * scale)
    torch.testing.assert_close(solution.dual, as_float64(expected["dual"]), rtol=0, atol=1e-8 * scale**2)
    assert float(solution.dual.sum()) == pytest.approx(expected["value"] ** 2, rel=1e-10)
    assert solution.gap <= 1e-12 and solution.kkt_residual <= 1e-12 and solution.max_violation <= 1e-12
    assert int(solution.rank) == np.linalg.matrix_rank(np.array(expected["W"]), tol=1e-9 * scale)
    assert float(solution.margin) == pytest.approx(1 / expected["value"])


@pytest.mark.parametrize("name", FEASIBLE)
def test_nuclear_values_duals_ranks_and_uniqueness(name):
    record, expected = RECORDS[name], RECORDS[name]["nuc"]
    solution = attention_svm(record["X"], record["z"], record["selected"], norm="nuc")
    scale = max(1.0, expected["value"])
    assert solution.status == Status.OPTIMAL and solution.norm == "nuc"
    assert abs(float(solution.value) - expected["value"]) <= 1e-8 * scale
    assert solution.gap <= 1e-12 and solution.kkt_residual <= 1e-12 and solution.max_violation <= 1e-12
    assert float(solution.dual.sum()) == pytest.approx(expected["value"], rel=1e-10)
    assert bool(solution.unique) == expected["unique"] and int(solution.rank) == expected["rank"]
    assert solution.rank_gap > 1e9
    if expected["unique"]:
        torch.testing.assert_close(solution.W, as_float64(expected["W"]), rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("norm", ["fro", "nuc"])
@pytest.mark.parametrize("name", INFEASIBLE)
def test_infeasible_records_raise_with_a_farkas_certificate(name, norm):
    record = RECORDS[name]
    with pytest.raises(InfeasibleError, match="no W separates") as caught:
        attention_svm(record["X"], record["z"], record["selected"], norm=norm)
    weights = caught.value.certificate
    X, z, selected = as_float64(record["X"]), as_float64(record["z"]), torch.tensor(record["selected"])
    assert (weights >= 0).all() and float(weights.sum()) == pytest.approx(1)
    assert (weights.gather(-1, selected[:, None]) == 0).all()
    combined = sum(
        weights[i, t] * torch.outer(X[i, selected[i]] - X[i, t], z[i]) for i in range(len(z)) for t in range(X.shape[1])
    )
    assert combined.norm() <= 1e-9 * X.norm(dim=-1).max() * z.norm(dim=-1).max()


def test_one_constraint_has_the_closed_form_u_z_over_squares():
    X, z = [[[3.0, 1.0, 0.0], [1.0, 2.0, 2.0]]], [[1.0, -2.0, 0.5]]
    u, q = torch.tensor([2.0, -1.0, -2.0], dtype=torch.float64), as_float64(z[0])
    solution = attention_svm(X, z, [0])
    torch.testing.assert_close(solution.W, torch.outer(u, q) / (u.dot(u) * q.dot(q)))


def test_orthogonal_rows_add_up():
    """Two sequences with orthogonal queries do not see each other: the squared values add."""
    X = [[[1.0, 0.0], [0.0, 0.0]], [[0.0, 3.0], [0.0, 0.0]]]
    solution = attention_svm(X, [[1.0, 0.0], [0.0, 1.0]], [0, 0])
    torch.testing.assert_close(solution.W, as_float64([[1.0, 0.0], [0.0, 1 / 3]]))
    assert float(solution.value) ** 2 == pytest.approx(1 + 1 / 9)
