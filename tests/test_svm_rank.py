"""Ranks: the stored table can be made again, and the search under a rank bound says what it can prove."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from attncore.course import data_files
from attncore.data import token_selection
from attncore.svm import InfeasibleError, Status, attention_svm, attention_svm_low_rank, margins

TABLE = data_files.load("svm-rank.json")
CELLS = {(cell["n"], cell["d"]): cell for cell in TABLE["cells"]}
X2 = [[[0, 0], [-1, -0.5], [-1, 0.5]], [[0, 0], [-0.5, -1], [0.5, -1]]]


def tool():
    path = Path(__file__).resolve().parents[1] / "tools" / "rank_table.py"
    spec = importlib.util.spec_from_file_location("rank_table", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("at", [(5, 12), (15, 6)])
def test_cells_can_be_made_again(at):
    made, kept = tool().cell(*at), CELLS[at]
    for key in ("feasible", "rank_fro", "rank_nuc", "unique"):
        assert made[key] == kept[key], key
    for made_row, kept_row in zip(made["singular_nuc"], kept["singular_nuc"], strict=True):
        np.testing.assert_allclose(made_row, kept_row, rtol=0.02, atol=1e-8)


def test_the_table_is_complete_and_certified():
    assert sorted(CELLS) == [(n, d) for n in (5, 10, 15) for d in range(2, 21)] and TABLE["seeds"] == 30
    for (n, d), cell in CELLS.items():
        assert len(cell["rank_fro"]) == len(cell["rank_nuc"]) == len(cell["singular_nuc"]) == cell["feasible"]
        assert cell["largest_gap"] is None or cell["largest_gap"] <= 1e-9
        assert all(rank <= min(n, d) for rank in cell["rank_fro"] + cell["rank_nuc"])
        for values, rank in zip(cell["singular_nuc"], cell["rank_nuc"], strict=True):
            assert sum(v > 1e-6 for v in values) == rank  # no singular value near the cut


@pytest.mark.parametrize(("n", "low", "high"), [(5, 2.3, 2.9), (10, 3.5, 4.1), (15, 4.3, 5.0)])
def test_nuclear_ranks_stay_far_below_the_bound(n, low, high):
    means = [np.mean(CELLS[n, d]["rank_nuc"]) for d in range(14, 21)]
    assert low <= np.mean(means) <= high
    assert all(np.mean(CELLS[n, d]["rank_fro"]) >= 0.98 * min(n, d) for d in range(14, 21))


def test_rank_one_where_the_convex_minimiser_has_rank_two():
    one = attention_svm_low_rank(X2, np.eye(2), [0, 0], m=1)
    assert float(one.value) == pytest.approx(4) and float(one.gap) == pytest.approx(0.5)
    assert one.status == Status.APPROXIMATE and int(one.rank) == 1 and one.unique is None
    np.testing.assert_allclose(one.W.abs(), np.full((2, 2), 2.0), atol=1e-9)


def test_values_fall_with_m_down_to_the_convex_one():
    data = token_selection(6, 8, 10, seed=1)
    full = attention_svm(data.X, data.z, data.optimal, norm="nuc")
    found = [attention_svm_low_rank(data.X, data.z, data.optimal, m, starts=4) for m in (1, 2, 3, int(full.rank))]
    values = [float(solution.value) for solution in found]
    assert values == sorted(values, reverse=True)
    for m, solution in zip((1, 2, 3), found, strict=False):
        assert int(solution.rank) == m and solution.status == Status.APPROXIMATE
        margin = margins(solution.W, data.X, data.z, data.optimal)
        own = torch.nn.functional.one_hot(data.optimal, 8).bool()
        assert float(margin[~own].min()) == pytest.approx(1)
        assert float(solution.value) * (1 - float(solution.gap)) <= float(full.value) * (1 + 1e-9)
    assert found[-1].status == Status.OPTIMAL and values[-1] == pytest.approx(float(full.value))


def test_rank_one_may_not_be_found_and_infeasible_is_said():
    """Two queries at a right angle need margins that no product k q^T has; the second problem nobody solves."""
    X = np.array([[[1, 0], [0, 0]], [[1, 0], [0, 0]], [[0, 1], [0, 0]], [[0, -1], [0, 0]]], float)
    z = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], float)
    assert attention_svm(X, z, [0] * 4).status == Status.OPTIMAL
    found = attention_svm_low_rank(X[None], z[None], [[0] * 4], m=1)
    assert found.status.tolist() == [Status.APPROXIMATE] and found.value[0] == np.inf and found.W.isnan().all()
    assert found.rank.tolist() == [0] and found.singular_values.isnan().all()
    with pytest.raises(InfeasibleError, match="no W of any rank"):
        attention_svm_low_rank([[[0.0], [1.0], [-1.0]]], [[1.0]], [0], m=1)
    with pytest.raises(ValueError, match="m must be at least 1"):
        attention_svm_low_rank(X, z, [0] * 4, m=0)
