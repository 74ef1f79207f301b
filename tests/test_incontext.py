"""`incontext.simulate`: its levels agree, its batches are its settings, its errors name what was wrong."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from attncore import incontext
from attncore.incontext.draws import draw_counts, draw_features
from attncore.incontext.sampled import _rise


def test_exact_and_count_level_agree_within_sampling_error():
    exact = incontext.simulate("exact", K=6, N=30, p1=0.4, eta=4.0, steps=60, record=20)
    runs = [incontext.simulate("count", K=6, N=30, p1=0.4, eta=4.0, steps=60, record=20, seed=s, prompts=2000)
            for s in range(8)]
    for name, fields in (("dominant", ("A", "B", "loss_k")), ("under", ("A", "B1", "attn_k", "attn_1", "loss_k"))):
        for field in fields:
            sample = torch.stack([getattr(run.columns[name], field)[-1] for run in runs])
            error = float(sample.std()) / math.sqrt(len(runs))
            truth = float(getattr(exact.columns[name], field)[-1])
            assert abs(float(sample.mean()) - truth) < 5 * error + 1e-12
            assert error < 0.05 * abs(truth)


def test_exact_and_token_level_agree_within_sampling_error():
    exact = incontext.simulate("exact", K=4, N=12, eta=4.0, steps=25)
    runs = [incontext.simulate("token", K=4, N=12, eta=4.0, steps=25, seed=s, prompts=1000, d=5) for s in range(6)]
    for field in ("A", "B", "loss_k", "attn_k"):
        sample = torch.stack([getattr(run.columns["balanced"], field)[-1] for run in runs])
        error = float(sample.std()) / math.sqrt(len(runs))
        truth = float(getattr(exact.columns["balanced"], field)[-1])
        assert abs(float(sample.mean()) - truth) < 5 * error
        assert error < 0.1 * abs(truth)
    assert float(exact.columns["balanced"].A[-1]) > 1


def test_features_of_the_token_level_may_be_any_orthonormal_set():
    V = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0][:3]
    rotated = incontext.simulate("token", K=3, N=8, steps=3, prompts=4000, features=V, eta=3.0)
    plain = incontext.simulate("token", K=3, N=8, steps=3, prompts=4000, d=5, eta=3.0)
    assert float(rotated.columns["balanced"].A[-1]) == pytest.approx(float(plain.columns["balanced"].A[-1]), rel=0.2)


@pytest.mark.parametrize("level", incontext.LEVELS)
def test_general_p_contains_the_layouts_by_class(level):
    """A general p with two values gives the columns of the dominant layout."""
    # probabilities without rounding, so that the sampled levels see the same prompts
    run = incontext.simulate(level, N=15, p=[0.5, 0.25, 0.25], steps=20, eta=3.0)
    by_class = incontext.simulate(level, K=3, N=15, p1=0.5, steps=20, eta=3.0)
    for field in ("A", "alpha", "attn_k", "attn_1", "loss_k"):
        dominant, under = (getattr(by_class.columns[name], field) for name in ("dominant", "under"))
        one, two, three = (getattr(run.columns[k], field) for k in range(3))
        torch.testing.assert_close(one, dominant, rtol=0, atol=1e-9)
        torch.testing.assert_close((two + three) / 2, under, rtol=0, atol=1e-9)
    assert run.columns[1].q.shape == (21, 3)
    torch.testing.assert_close(run.loss, by_class.loss, rtol=0, atol=1e-9)
    torch.testing.assert_close(run.matrix().diagonal().sum(), by_class.matrix().diagonal().sum(), rtol=0, atol=1e-8)
    if level not in ("count", "token"):
        torch.testing.assert_close(run.matrix(), by_class.matrix(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("level", ["exact", "mean_field", "closed", "count", "token"])
def test_a_batch_is_its_settings_one_by_one(level):
    sizes = {"prompts": 50, "seed": 3} if level in ("count", "token") else {}
    both = incontext.simulate(level, K=[3, 5], N=[7, 9], p1=[0.3, 0.6], eta=2.0, steps=6, record=4, **sizes)
    assert both.steps.tolist() == [0, 4, 6]
    assert both.loss.shape == (3, 2) and both.floor.shape == (2,) and both.loss_rises.shape == (2,)
    alone = incontext.simulate(level, K=3, N=7, p1=0.3, eta=2.0, steps=6, record=[4], **sizes)
    for name in ("dominant", "under"):
        for field in ("A", "alpha", "attn_k", "attn_1", "loss_k"):
            got, want = getattr(both.columns[name], field)[:, 0], getattr(alone.columns[name], field)
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(both.columns[name].floor_k[0], alone.columns[name].floor_k)
    # the smaller setting's matrix sits in the corner, zeros around it
    torch.testing.assert_close(both.matrix()[0, :3, :3], alone.matrix(), rtol=0, atol=1e-9)
    assert float(both.matrix()[0, 3:].abs().max()) == 0


def test_seeds_decide_and_the_global_state_is_left_alone():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()
    a, b, c = (incontext.simulate("count", K=3, N=5, steps=3, prompts=20, seed=s).loss for s in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c)
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])


def test_initial_loss_and_weighted_sum():
    run = incontext.simulate("exact", N=11, p=[0.5, 0.3, 0.2], steps=0)
    assert float(run.loss[0]) == pytest.approx(float(incontext.initial_loss([0.5, 0.3, 0.2], 11)), rel=1e-13)
    assert float(run.loss[0]) == pytest.approx(0.5 * (1 + 1 / 11) * (1 - 0.38), rel=1e-13)
    assert float(incontext.initial_loss([0.5, 0.5])) == 0.25


def test_two_features_and_one_dominant():
    run = incontext.simulate("exact", K=2, N=9, p1=0.7, steps=50)
    same = incontext.simulate("exact", N=9, p=[0.7, 0.3], steps=50)
    torch.testing.assert_close(run.columns["under"].A, same.columns[1].A, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(run.columns["under"].B1, same.columns[1].q[:, 0], rtol=1e-12, atol=1e-14)
    assert float(run.columns["under"].Bn.abs().max()) == 0


def test_floor_is_a_lower_bound_and_is_approached():
    run = incontext.flow("exact", [1e3, 1e6, 1e10], p=[0.5, 0.3, 0.2], N=6)
    for column in run.columns.values():
        assert (column.excess > 0).all()
        assert float(column.excess[-1]) < 1e-6 * float(column.floor_k)


def test_floors_survive_underflow():
    run = incontext.simulate("exact", K=20, N=20_000, p1=0.5, steps=0)
    assert float(run.columns["dominant"].floor_k) == 0
    assert 0 < float(run.columns["under"].floor_k) < 1e-200
    assert float(incontext.log_missing(0.5, 20_000)) == pytest.approx(20_000 * math.log(0.5))


def test_a_step_size_that_raises_the_loss_is_reported():
    calm = incontext.simulate("exact", K=5, N=3, p1=0.8, eta=1.0, steps=100)
    wild = incontext.simulate("exact", K=5, N=3, p1=0.8, eta=1000.0, steps=100)
    assert int(calm.loss_rises) == -1 and calm.status == "ok: the loss never rose"
    step = int(wild.loss_rises)
    assert step == 3 and float(wild.loss[step]) > float(wild.loss[step - 1])
    assert bool((wild.loss[1:step] <= wild.loss[:step - 1]).all())
    assert wild.status == "the loss rose, first at step 3: use a smaller eta"
    both = incontext.simulate("exact", K=5, N=3, p1=0.8, eta=[1.0, 1000.0], steps=100)
    assert both.loss_rises.tolist() == [-1, 3] and "in 1 of 2 settings" in both.status


def test_sampled_losses_count_as_risen_beyond_their_noise():
    loss, error = torch.tensor([0.48, 0.51, 0.5, 0.8]), torch.full((4,), 0.01)
    assert _rise([0, 5, 10, 15], loss, error, start=0.5) == 15
    assert _rise([0, 5, 10], loss[:3], error[:3], start=0.5) == -1
    assert _rise([0, 5], torch.tensor([0.5, math.nan]), error[:2], start=0.5) == 5
    assert int(incontext.simulate("count", K=4, N=9, steps=9, prompts=200).loss_rises) == -1


def test_the_count_level_survives_saturation():
    run = incontext.simulate("count", K=5, N=3, p1=0.8, eta=3e4, steps=8, prompts=60)
    assert bool(torch.isfinite(run.loss).all()) and float(run.matrix().abs().max()) > 1000


def test_draws_have_the_stated_probabilities():
    """A probability far below 2^-16 is met too: that is where the table of the sampler cannot tell."""
    p = np.array([3e-6, 0.3, 0.5, 0.2 - 3e-6])
    drawn = np.bincount(draw_features(np.random.default_rng(0), p, 4_000_000), minlength=4)
    assert stats.chisquare(drawn, 4_000_000 * p).pvalue > 1e-4
    assert 1 <= drawn[0] <= 40
    for N in (6, 600):
        counts = draw_counts(np.random.default_rng(N), np.array([0.2, 0.5, 0.3]), N, 40_000)
        assert (counts.sum(1) == N).all()
        np.testing.assert_allclose(counts.mean(0), N * np.array([0.2, 0.5, 0.3]), rtol=0.02)
        covariance = N * (np.diag([0.2, 0.5, 0.3]) - np.outer([0.2, 0.5, 0.3], [0.2, 0.5, 0.3]))
        np.testing.assert_allclose(np.cov(counts.T), covariance, atol=0.03 * N)


def test_settings_of_a_batch_draw_their_own_prompts():
    for level in ("token", "count"):
        loss = incontext.simulate(level, K=[4, 4], N=9, steps=0, prompts=50).loss
        assert float(loss[0, 0]) != float(loss[0, 1])


def test_prompt_law_averages_to_the_attention_of_the_column():
    run = incontext.simulate("exact", K=20, N=200, steps=900)
    column = run.columns["balanced"]
    c, weight, rest = incontext.prompt_law(float(column.A[-1] - column.B[-1]), 0.05, 200)
    assert float(weight @ (1 - rest)) == pytest.approx(float(column.attn_k[-1]), rel=1e-12)
    assert bool((rest[1:] < rest[:-1]).all()) and float(rest[0]) == 1 and c.shape == (201,)


def test_a_trained_column_on_other_prompts():
    """Longer prompts than in training do no harm: the loss of the trained column falls with N."""
    q = incontext.simulate("exact", K=8, N=40, steps=400).matrix()[:, 0]
    losses = [float(incontext.column_moments(q, [1 / 8] * 8, 0, N).loss) for N in (10, 40, 400)]
    assert losses[0] > losses[1] > losses[2]
    absent = incontext.column_moments(q, [0.0] + [1 / 7] * 7, 0, 40)
    # the feature asked for never occurs: attention is shared by seven, 1/2 (1 + 1/40 + 39/40/7)
    assert float(absent.loss) == pytest.approx(0.5 * (1 + 1 / 40 + 39 / 280), rel=1e-12)
    assert float(absent.attention[0]) == 0


@pytest.mark.parametrize("kwargs, words", [
    ({"level": "tokens"}, "level must be one of"),
    ({"p": [0.5, 0.6]}, "sum of 1.1"),
    ({"p": [1.2, -0.2]}, "negative entry -0.2"),
    ({"p": [1.0, 0.0]}, "positive probability"),
    ({"p": [[0.5, 0.5]], "K": 3}, "K must be the length of p"),
    ({"K": 4, "p1": 1.0}, "p1 must lie strictly between 0 and 1"),
    ({"K": 4, "p1": 0.5, "p": [0.5, 0.5]}, "exclude each other"),
    ({"K": 1}, "K must be whole and at least 2"),
    ({"K": 4, "N": 0}, "N must be whole and at least 1"),
    ({"K": 4, "N": None}, "N, the prompt length, is needed"),
    ({"K": None}, "K, the number of features"),
    ({"K": 4, "eta": 0.0}, "eta must lie strictly between 0 and inf, got 0"),
    ({"K": 4, "eta": -1.0}, "eta must lie"),
    ({"K": 4, "d": 3}, "do not fit into d=3"),
    ({"K": 4, "d": 3, "level": "token"}, "do not fit into d=3"),
    ({"K": 2, "features": [[1.0, 0.1], [0.0, 1.0]], "level": "token"}, "orthonormal within 1e-9: .* is 0.1"),
    ({"K": 2, "features": [[1.0], [0.0]], "level": "token"}, "at least K=2 columns"),
    ({"K": 2, "features": [[1.0, 0.0]], "level": "token"}, r"shape \(K, d\)"),
    ({"K": 2, "features": [[1.0, 0.0], [0.0, 1.0]]}, "only used at level 'token'"),
    ({"K": [2, 3], "eta": [1.0, 2.0, 3.0]}, "broadcast"),
    ({"K": 4, "steps": -1}, "steps must be at least 0"),
    ({"K": 4, "record": [5, 99]}, "record must hold steps up to"),
    ({"K": 4, "expectation": "guess"}, "expectation must be one of"),
    ({"p": [0.5, 0.3, 0.2], "expectation": "sum"}, "'auto' or 'integral'"),
    ({"K": 4, "tail": 1.5}, "tail must be below 1"),
    ({"K": 4, "eta": float("nan")}, "eta must be finite"),
])
def test_bad_values(kwargs, words):
    arguments = {"level": "exact", "N": 5, "steps": 10, **kwargs}
    with pytest.raises(ValueError, match=words):
        incontext.simulate(arguments.pop("level"), **arguments)


@pytest.mark.parametrize("kwargs", [{"K": 4.5}, {"K": "four"}, {"K": 4, "N": 5.0}, {"K": 4, "steps": 2.5},
                                    {"K": 4, "eta": "one"}])
def test_wrong_types(kwargs):
    with pytest.raises(TypeError):
        incontext.simulate("exact", **{"N": 5, "steps": 3, **kwargs})


@pytest.mark.parametrize("call, words", [
    (lambda: incontext.column_gradient([0.0, 0.0], [0.5, 0.5], 2, 3), "k must lie in 0..1"),
    (lambda: incontext.column_gradient([0.0], [0.5, 0.5], 0, 3), "q must have shape"),
    (lambda: incontext.column_gradient([0.0] * 20, [0.05] * 20, 0, 200), "enumeration takes at most"),
    (lambda: incontext.column_moments([0.0, 0.0], [0.5, 0.5], 2, 3), "k must lie in 0..1"),
    (lambda: incontext.column_moments([0.0], [0.5, 0.5], 0, 3), "q must have shape"),
    (lambda: incontext.prompt_law(1.0, 1.0, 3), "p_k must lie"),
    (lambda: incontext.initial_loss([0.5, 0.4], 3), "distribution"),
])
def test_bad_values_of_the_smaller_functions(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_every_level_runs_where_its_settings_live():
    eta = torch.tensor([1.0, 2.0], dtype=torch.float64, device="cuda")
    for level in incontext.LEVELS:
        here = incontext.simulate(level, K=5, N=12, p1=0.4, eta=eta.cpu(), steps=10, prompts=100)
        there = incontext.simulate(level, K=5, N=12, p1=0.4, eta=eta, steps=10, prompts=100)
        assert there.loss.device.type == "cuda"
        torch.testing.assert_close(there.columns["under"].A.cpu(), here.columns["under"].A, rtol=1e-10, atol=1e-12)
