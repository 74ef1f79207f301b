"""Phase boundaries against reference values, and what is said when a phase is empty or not reached."""

import json

import pytest
import torch

from attncore import incontext, phases


@pytest.fixture(scope="module")
def references(root):
    return json.loads((root / "tests" / "oracles" / "incontext.json").read_text())["phases"]


@pytest.mark.parametrize("number", range(5))
def test_boundaries_of_the_references(references, number):
    value = references[number]
    balanced = value["kind"] == "balanced"
    traj = incontext.simulate("exact", K=value["K"], N=value["N"], p1=value.get("p1"), eta=value["eta"], steps=3000)
    found = phases.detect(traj, eps=value["eps"])
    expected = {"T_1": value["T_growth_argmax_alpha"], "T_2": value["T_conv"]} if balanced else \
        {name: value[name] for name in ("T_I", "T_II", "T_III", "T_IV")}
    times = found.times["balanced" if balanced else "under"]
    assert set(times) == set(expected)
    for name, step in expected.items():
        assert isinstance(times[name], int)
        assert abs(times[name] - step) <= (2 if name in ("T_1", "T_III") else 1), name
        assert found.status["balanced" if balanced else "under"][name] == "ok"


def test_the_display_settings():
    balanced = phases.detect(incontext.simulate("exact", K=20, N=200, steps=2000))
    assert balanced.times == {"balanced": {"T_1": 468, "T_2": 1374}}
    imbalanced = phases.detect(incontext.simulate("exact", K=20, N=400, p1=0.5, steps=3500))
    assert imbalanced.times["under"] == {"T_I": 423, "T_II": 863, "T_III": 1109, "T_IV": 2804}
    assert imbalanced.times["dominant"] == {"T_1": 0, "T_2": 74}
    assert imbalanced.status["dominant"] == {"T_1": "empty", "T_2": "ok"}


def test_batch_statuses():
    """One run of five settings: phase I empty or not, II and III swapped or not, the end reached or not."""
    traj = incontext.simulate("exact", K=[20, 10, 5, 40, 5], N=200, p1=[0.2, 0.3, 0.3, 0.2, 0.7], steps=600)
    found = phases.detect(traj)
    assert found.status["under"]["T_I"].tolist() == ["empty", "empty", "empty", "ok", "ok"]
    assert found.times["under"]["T_I"][:3].tolist() == [0, 0, 0]
    assert found.status["under"]["T_III"][4] == "empty" and found.status["under"]["T_II"][4] == "ok"
    assert abs(int(found.times["under"]["T_II"][4]) - 91) <= 4
    assert found.status["under"]["T_IV"][0] == "not reached"
    assert int(found.times["under"]["T_IV"][0]) == -1
    assert found.times["under"]["T_I"].dtype == torch.int64


def test_a_peak_at_the_end_is_not_a_peak():
    found = phases.detect(incontext.simulate("exact", K=20, N=200, steps=300))
    assert found.times["balanced"] == {"T_1": None, "T_2": None}
    assert found.status["balanced"] == {"T_1": "not reached", "T_2": "not reached"}


def test_threshold_of_one_phase():
    """The dominant column's fast growth is over at the start exactly when p_1 > 1/3, in the mean field."""
    traj = incontext.simulate("mean_field", K=12, p1=[0.3, 0.33, 0.334, 0.5], eta=0.1, steps=300)
    assert phases.detect(traj).status["dominant"]["T_1"].tolist() == ["ok", "ok", "empty", "empty"]


def test_equal_sides_at_the_start_are_equal_despite_rounding():
    """p_1 = 1/sqrt(K): the forces are level at Q = 0, phase I is empty. p_1 = 1/K: so are the attentions."""
    K = [4, 9, 16, 25, 49, 100]
    level = phases.detect(incontext.simulate("mean_field", K=K, p1=[k**-0.5 for k in K], steps=2))
    assert level.times["under"]["T_I"].tolist() == [0] * 6 and set(level.status["under"]["T_I"]) == {"empty"}
    just = phases.detect(incontext.simulate("mean_field", K=K, p1=[k**-0.5 + 1e-9 for k in K], steps=2))
    assert (just.times["under"]["T_I"] > 0).all()
    for name in ("mean_field", "exact"):
        even = incontext.simulate(name, K=[5, 20, 30], N=None if name == "mean_field" else 40,
                                  p1=[1 / 5, 1 / 20, 1 / 30], steps=2)
        assert phases.detect(even).times["under"]["T_II"].tolist() == [0, 0, 0]


def test_second_boundary_in_the_mean_field_is_where_the_logits_make_up_for_the_frequencies():
    traj = incontext.simulate("mean_field", K=10, p1=0.5, steps=400)
    step = phases.detect(traj).times["under"]["T_II"]
    column = traj.columns["under"]
    gap = column.A - column.B1 - (traj.p[0] / traj.p[1]).log()
    assert float(gap[step]) >= 0 > float(gap[step - 1])


def test_flow_gives_times_and_sparse_records_give_recorded_steps():
    run = incontext.flow("closed", torch.linspace(0, 1500, 3001), K=20)
    time = phases.detect(run).times["balanced"]["T_1"]
    # argmax alpha of the flow is at odds 1/2
    assert time == pytest.approx(float(incontext.closed_form(20, 0.05, 0.5)), abs=0.5)
    sparse = phases.detect(incontext.simulate("exact", K=20, N=200, steps=2000, record=100))
    assert sparse.times["balanced"]["T_1"] in (400, 500) and sparse.times["balanced"]["T_2"] == 1400


def test_general_p_has_two_boundaries_a_column():
    found = phases.detect(incontext.simulate("exact", N=30, p=[0.5, 0.3, 0.15, 0.05], eta=2.0, steps=1500))
    ends = [found.times[k]["T_2"] for k in range(4)]
    assert ends == sorted(ends) and ends[0] < ends[3]


def test_summary_says_what_and_when():
    found = phases.detect(incontext.simulate("exact", K=10, N=200, p1=0.5, steps=500))
    lines = found.summary().splitlines()
    assert lines[0] == "phase boundaries (eps = 0.01)"
    assert any("T_II " in line and "202" in line and "ok" in line for line in lines)
    assert any("T_IV" in line and " - " in line and "not reached" in line for line in lines)
    batch = phases.detect(incontext.simulate("exact", K=[10, 12], N=200, p1=0.5, steps=60)).summary()
    assert "not reached, not reached" in batch


def test_bad_input():
    traj = incontext.simulate("exact", K=4, N=5, steps=2)
    with pytest.raises(ValueError, match="eps must be greater than 0"):
        phases.detect(traj, eps=0.0)
    with pytest.raises(TypeError, match="traj must be a Trajectory"):
        phases.detect({"loss": 1})
