"""The in-context package against reference values computed elsewhere in 40-digit arithmetic."""

import json

import pytest
import torch

from attncore import incontext
from attncore.incontext.arrays import NUMPY
from attncore.incontext.exact import BinomialSum, TrinomialSum
from attncore.incontext.settings import resolve


@pytest.fixture(scope="module")
def oracle(root):
    return json.loads((root / "tests" / "oracles" / "incontext.json").read_text())


def close(actual, expected, rtol=1e-12, atol=0.0):
    torch.testing.assert_close(torch.as_tensor(actual, dtype=torch.float64),
                               torch.tensor(expected, dtype=torch.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("method", [incontext.column_gradient, incontext.column_moments])
def test_cases_by_enumeration_and_by_integral(oracle, number, method):
    case = oracle["cases"][number]
    Q, p, N = torch.tensor(case["Qv"], dtype=torch.float64), case["p"], case["N"]
    total = 0.0
    for k in range(case["K"]):
        loss, g, *attention = method(Q[:, k], p, k, N)
        close(loss, case["loss_given_k"][k])
        # components that vanish exactly come out at rounding level
        close(g, [row[k] for row in case["neg_grad"]], atol=1e-16)
        if attention:
            close(attention[0], [row[k] for row in case["attn_mean"]])
        total += p[k] * loss
    close(total, case["loss"])


def test_point_evaluations(oracle):
    for point in oracle["point_evaluations"]:
        K, N = point["K"], point["N"]
        if point["kind"] == "two_scalar":
            # the model holds B = -A / (K - 1); only A - B enters
            state = (point["A"] - point["B"]) * (K - 1) / K
            alpha, loss, rest = BinomialSum(NUMPY, N, point["p_k"], K - 1, tail=0.0).rates(NUMPY.array(state))
            close(loss, point["loss_k"])
            close(alpha, point["alpha_k"])
            close(-alpha / (K - 1), point["beta_kn"])
            close(1 - rest, point["E_attn_k"])
            continue
        p_1 = point["p1"]
        p_k = (1 - p_1) / (K - 1)
        logits = [point["A"], point["B1"], point["Bn"]]
        g, loss, (rest, attn_1) = TrinomialSum(NUMPY, N, p_k, p_1, K - 2, tail=0.0).rates(NUMPY.array(logits))
        close(loss, point["loss_k"])
        close(g, [point["alpha_k"], point["beta_k1"], point["beta_kn"]])
        close(1 - rest, point["E_attn_k"])
        close(attn_1, point["E_attn_1"])
        q = torch.tensor([logits[1], logits[0], *[logits[2]] * (K - 2)], dtype=torch.float64)
        moments = incontext.column_moments(q, [p_1] + [p_k] * (K - 1), 1, N)
        close(moments.loss, point["loss_k"])
        close(moments.g[:3], [point["beta_k1"], point["alpha_k"], point["beta_kn"]])
        close(moments.attention[:2], [point["E_attn_1"], point["E_attn_k"]])


def test_initial_loss(oracle):
    for value in oracle["initial_loss"]["values"]:
        close(incontext.initial_loss(value["p"], value["N"]), value["L0"])


def test_mean_field_descent(oracle):
    names = {"balanced": "balanced", "dominant": "dominant", "under_represented": "under"}
    for kind, runs in oracle["mean_field_gd"].items():
        for run in runs:
            steps = [point["step"] for point in run["traj"]]
            traj = incontext.simulate("mean_field", K=run["K"], p1=run.get("p1"), eta=run["eta"], steps=steps[-1],
                                      record=steps)
            column = traj.columns[names[kind]]
            for point in run["traj"]:
                index = int((traj.steps == point["step"]).nonzero())
                for name, value in point.items():
                    if name != "step":
                        close(getattr(column, name)[index], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("expectation", ["sum", "integral"])
def test_finite_prompt_descent(oracle, expectation):
    for run in oracle["finite_N_gd"]:
        steps = [point["step"] for point in run["traj"]]
        traj = incontext.simulate("exact", K=run["K"], N=run["N"], p1=run.get("p1"), eta=run["eta"], steps=steps[-1],
                                  record=steps, expectation=expectation)
        for point in run["traj"]:
            index = int((traj.steps == point["step"]).nonzero())
            if run["kind"] == "balanced":
                column = traj.columns["balanced"]
                got = {"A": column.A, "B": column.B, "loss": traj.loss}
            else:
                one, under = traj.columns["dominant"], traj.columns["under"]
                got = {"A1": one.A, "B_1n": one.B, "loss_1": one.loss_k, "A": under.A, "B1": under.B1,
                       "Bn": under.Bn, "loss_k": under.loss_k, "loss": traj.loss}
            for name, value in point.items():
                if name != "step":
                    close(got[name][index], value, rtol=0, atol=1e-12)


def test_flow_times(oracle):
    for value in oracle["flow_times_closed_form"]:
        close(incontext.closed_form(value["K"], value["p_k"], value["odds"]), value["eta_t"])
        close(incontext.odds_at(value["K"], value["p_k"], value["eta_t"]), value["odds"], rtol=1e-11)


def test_floors(oracle):
    for value in oracle["floors"]:
        traj = incontext.simulate("exact", K=value["K"], N=value["N"], p1=value.get("p1"), steps=0)
        close(traj.floor, value["Lstar"], rtol=1e-12 if value["kind"] == "balanced" else 1e-9)
        if value["kind"] == "imbalanced":
            close(traj.columns["dominant"].floor_k, value["floor_1"])
            close(traj.columns["under"].floor_k, value["floor_k"], rtol=1e-9)


def test_floor_by_general_p_agrees(oracle):
    value = next(v for v in oracle["floors"] if v["kind"] == "imbalanced")
    K, p1 = value["K"], value["p1"]
    settings = resolve("exact", N=value["N"], p=[p1] + [(1 - p1) / (K - 1)] * (K - 1))
    floors = incontext.floors.column_floors(settings, "general")
    close(floors, [value["floor_1"]] + [value["floor_k"]] * (K - 1), rtol=1e-9)
