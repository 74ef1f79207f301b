"""attncore.training: trajectories against the reference values, and what a run promises."""

import gc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attncore import arrays
from attncore.attention import SelectionAttention, softmax_attention
from attncore.data import TokenSelection, token_selection
from attncore.gradients import Objective
from attncore.losses import LOSSES
from attncore.training import record_schedule, train

PUBLISHED = dict(normalization="each", norm_eps=2.22e-16)


@pytest.fixture(params=["numpy", "torch"])
def either_array(request, monkeypatch):
    """Run the test on both kinds of array."""
    if request.param == "torch":
        monkeypatch.setattr(arrays, "SMALL_PROBLEM", 0)


def reference(oracle, k):
    return TokenSelection(*(oracle[f"{k}_{name}"] for name in "Xzyv"))


def frobenius(M):
    return torch.linalg.matrix_norm(M)


@pytest.mark.parametrize("k", [0, 1])
def test_published_descent_on_W(oracle_trajectories, k, either_array):
    o = oracle_trajectories
    traj = train(reference(o, k), steps=2000, init=o[f"{k}_W0"], record=[100, 300], **PUBLISHED)
    assert traj.steps.tolist() == [0, 100, 300, 2000]
    assert np.abs(traj.W[1].numpy() - o[f"{k}_W100"]).max() < 1e-12
    assert np.abs(traj.W[2].numpy() - o[f"{k}_W300"]).max() < 1e-9
    assert traj.attention.argmax(-1).tolist() == o[f"{k}_Wsel"].tolist()


@pytest.mark.parametrize("k", [0, 1])
def test_published_descent_on_K_and_Q(oracle_trajectories, k, either_array):
    o = oracle_trajectories
    start = o[f"{k}_K0"], o[f"{k}_Q0"]
    traj = train(reference(o, k), "KQ", steps=2000, init=start, record=[100], ridge=2.22e-16, **PUBLISHED)
    assert np.abs(traj.W[1].numpy() - o[f"{k}_KQ100"]).max() < 1e-6
    assert traj.attention.argmax(-1).tolist() == o[f"{k}_KQsel"].tolist()


def autograd_step(prob, weights, *, lr, ridge, loss, normalization=None, norm_eps=0.0):
    """One step on one problem, the gradient taken by autograd."""
    how, init = ("W", weights[0]) if len(weights) == 1 else ("KQ", weights)
    model = SelectionAttention(prob.v, how, init)
    parameters = list(model.parameters())
    data_loss = LOSSES[loss].value(prob.y * model(prob.X, prob.z)).mean()
    gradients = torch.autograd.grad(data_loss + ridge * sum(p.square().sum() for p in parameters), parameters)
    norms = [1.0] * len(gradients)
    if normalization:
        norms = [g.norm() for g in gradients]
        if normalization == "joint":
            norms = [torch.stack(norms).norm()] * len(norms)
    return [p.detach() - lr * g / (norm + norm_eps)
            for p, g, norm in zip(parameters, gradients, norms, strict=True)]


@pytest.mark.parametrize("parametrization", ["W", "KQ"])
@pytest.mark.parametrize("rule", [
    dict(normalized=False, ridge=0.0, loss="logistic"), dict(normalized=False, ridge=0.3, loss="exponential"),
    dict(normalization="joint", ridge=0.1, loss="correlation"),
    dict(normalization="each", ridge=0.1, loss="logistic"),
    dict(normalization="each", ridge=0.0, loss="logistic", norm_eps=0.05),
    dict(normalization="joint", ridge=0.0, loss="exponential", norm_eps=0.01),
], ids=lambda rule: "-".join(str(value) for value in rule.values()))
def test_three_steps_agree_with_autograd(parametrization, rule, either_array):
    prob = token_selection(3, 4, 5, seed=4)
    draw = torch.Generator().manual_seed(5)
    weights = [torch.randn(5, 5, generator=draw).double()] if parametrization == "W" else list(
        torch.randn(2, 5, 3, generator=draw).double())
    init = weights[0] if parametrization == "W" else tuple(weights)
    traj = train(prob, parametrization, steps=3, lr=0.7, init=init, record=1, **rule)
    keywords = {k: v for k, v in rule.items() if k != "normalized"}
    for k in range(1, 4):
        weights = autograd_step(prob, weights, lr=0.7, **keywords)
        state = [traj.W[k]] if parametrization == "W" else [traj.K[k], traj.Q[k]]
        for found, expected in zip(state, weights, strict=True):
            assert torch.allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("parametrization", ["W", "KQ"])
def test_batch_equals_its_problems_one_by_one(parametrization, either_array):
    prob = token_selection(3, 4, 5, batch=(2, 2), seed=1)
    together = train(prob, parametrization, steps=50, record=25)
    assert together.W.shape == (3, 2, 2, 5, 5)
    start = (None if parametrization == "W" else (together.K[0, 1, 0], together.Q[0, 1, 0]))
    alone = train(prob[1, 0], parametrization, steps=50, record=25, init=start)
    assert torch.allclose(together.W[:, 1, 0], alone.W, rtol=0, atol=1e-12)
    assert torch.allclose(together.loss[:, 1, 0], alone.loss, rtol=1e-13)


def test_losses_and_attention_belong_to_the_recorded_weights():
    prob = token_selection(3, 4, 5, batch=2, seed=2)
    traj = train(prob, steps=30, record=10, ridge=0.01)
    for row in range(4):
        s = softmax_attention(prob.X, traj.W[row], prob.z)
        u = prob.y * ((s.unsqueeze(-2) @ prob.X).squeeze(-2) * prob.v.unsqueeze(-2)).sum(-1)
        assert torch.allclose(traj.loss[row], torch.nn.functional.softplus(-u).mean(-1))
    assert torch.allclose(traj.attention, s)
    assert torch.equal(traj.loss[0], traj.loss[0].clone()) and (traj.loss[-1] < traj.loss[0]).all()


@pytest.mark.parametrize("parametrization", ["W", "KQ"])
@pytest.mark.parametrize("ridge", [0.0, 2.22e-16])
def test_last_weights_continue_the_identical_path(parametrization, ridge, either_array):
    prob = token_selection(4, 5, 6, batch=3, seed=6)
    whole = train(prob, parametrization, steps=400, record=[150], ridge=ridge)
    half = train(prob, parametrization, steps=150, record=50, ridge=ridge)
    assert torch.equal(half.W[-1], whole.W[1])
    init = half.W[-1] if parametrization == "W" else (half.K[-1], half.Q[-1])
    rest = train(prob, parametrization, steps=250, init=init, ridge=ridge)
    assert torch.equal(rest.W[-1], whole.W[-1])


def test_the_seed_decides_the_start_and_nothing_else_does():
    prob = token_selection(3, 4, 5, batch=2)
    torch.manual_seed(0)
    first = train(prob, "KQ", steps=5, seed=1)
    state = torch.get_rng_state()
    again = train(prob, "KQ", steps=5, seed=1)
    assert torch.equal(first.W, again.W)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(train(prob, "KQ", steps=5, seed=2).W, first.W)


def test_input_is_left_alone():
    prob, W0 = token_selection(3, 4, 5), torch.eye(5).double()
    before = [a.clone() for a in (prob.X, prob.z, prob.y, prob.v, W0)]
    threads = torch.get_num_threads()
    train(prob, steps=5, init=W0)
    assert all(torch.equal(a, b) for a, b in zip(before, (prob.X, prob.z, prob.y, prob.v, W0), strict=True))
    assert torch.get_num_threads() == threads


def test_a_run_holds_no_memory_once_it_is_over():
    """Its arrays are released at once, not when the garbage collector happens to look for cycles."""
    prob = token_selection(3, 4, 5)
    gc.collect()
    gc.disable()
    try:
        train(prob, "KQ", steps=2)
        assert not [thing for thing in gc.get_objects() if type(thing) is Objective]
    finally:
        gc.enable()


def test_callback_sees_recorded_states_and_can_stop():
    prob, seen = token_selection(3, 4, 5, batch=2), []

    def callback(progress):
        seen.append(progress)
        return progress.step >= 20

    traj = train(prob, "KQ", steps=100, record=10, callback=callback)
    assert [p.step for p in seen] == [0, 10, 20] == traj.steps.tolist()
    assert traj.stopped == 20 and traj.W.shape[0] == 3 and {p.steps for p in seen} == {100}
    for row, progress in enumerate(seen):
        assert torch.equal(progress.weights[0], traj.K[row]) and torch.equal(progress.loss, traj.loss[row])
    full = train(prob, "KQ", steps=100, record=10)
    assert torch.equal(full.W[2], traj.W[2]) and full.stopped is None


def test_record_schedules():
    assert record_schedule(3, 10) == [0, 3, 6, 9, 10]
    assert record_schedule([4, 2, 4], 10) == [0, 2, 4, 10]
    assert record_schedule(np.array([5]), 5) == [0, 5]
    assert record_schedule(torch.tensor([1]), 2) == [0, 1, 2]
    assert record_schedule(100, 0) == [0]
    assert train(token_selection(2, 3, 4), steps=0).W.shape == (1, 4, 4)


@pytest.mark.parametrize("gradient", ["exact", "naive"])
def test_saturation_is_the_first_state_with_all_attention_on_one_token(gradient, either_array):
    prob = token_selection(3, 4, 8, batch=4, seed=3)
    traj = train(prob, steps=1500, record=1, gradient=gradient)
    L = torch.einsum("bntd,rbde,bne->rbnt", prob.X, traj.W, prob.z)
    full = (torch.exp(L - L.amax(-1, keepdim=True)).sum(-1) <= 1 + np.finfo(float).eps).all(-1)
    assert full[-1].any()
    for b in range(4):
        states = full[:, b].nonzero()
        first = int(states[0]) if len(states) else -1
        assert abs(int(traj.saturated[b]) - first) <= 2
    assert train(prob, steps=10).saturated.tolist() == [-1] * 4
    assert train(token_selection(2, 1, 3), steps=3).saturated == 0


def test_exact_descent_keeps_its_pace_where_the_naive_one_stalls():
    prob = token_selection(6, 8, 10, batch=10)
    exact, naive = (train(prob, steps=2000, record=2000, gradient=form) for form in ("exact", "naive"))
    assert (exact.saturated > 0).all()
    assert torch.allclose(frobenius(exact.W[-1]), torch.tensor(200.0).double(), rtol=0.1)
    assert (frobenius(naive.W[-1]) < 0.85 * frobenius(exact.W[-1])).all()


@pytest.mark.parametrize("parametrization", ["W", "KQ"])
def test_large_gaussian_data_never_divides_zero_by_zero(parametrization, either_array):
    draw = torch.Generator().manual_seed(1)
    X, z, v = (300 * torch.randn(*shape, generator=draw).double() for shape in ((3, 6, 5), (3, 5), (5,)))
    prob = TokenSelection(X, z, [1, -1, 1], v / v.norm())
    traj = train(prob, parametrization, steps=200, record=1)
    assert torch.isfinite(traj.W).all()
    moved = frobenius(traj.W[1:] - traj.W[:-1]) if parametrization == "W" else (
        frobenius(traj.K[1:] - traj.K[:-1]) ** 2 + frobenius(traj.Q[1:] - traj.Q[:-1]) ** 2).sqrt()
    assert torch.allclose(moved, torch.tensor(0.1).double(), rtol=1e-6)


@pytest.mark.parametrize("case", ["one token", "no query", "equal scores", "zero factors"])
def test_zero_gradient_takes_no_step(case, either_array):
    prob = token_selection(3, 4, 5, seed=1)
    X, z, v, how, init = prob.X, prob.z, prob.v, "W", None
    if case == "one token":
        X = X[:, :1]
    elif case == "no query":
        z = torch.zeros_like(z)
    elif case == "equal scores":
        X = X.clone()
        X[..., 0], v = 1.0, torch.eye(5)[0].double()
    else:
        how, init = "KQ", (torch.zeros(5, 2), torch.zeros(5, 2))
    traj = train(TokenSelection(X, z, prob.y, v), how, steps=3, init=init)
    assert not traj.W.any()


@pytest.mark.parametrize("parametrization", ["W", "KQ"])
def test_ridge_far_below_the_loss_gradient_still_acts_when_the_loss_is_gone(parametrization, either_array):
    prob = token_selection(2, 3, 4, seed=1)
    start = 3e3 * torch.eye(4).double() if parametrization == "W" else (60 * torch.eye(4), 60 * torch.eye(4))
    traj = train(prob, parametrization, steps=1, lr=1.0, init=start, ridge=1e-200)
    factors = [traj.W] if parametrization == "W" else [traj.K, traj.Q]
    size = torch.stack([frobenius(M[0]) for M in factors]).norm()
    for M in factors:
        assert torch.allclose(M[1], M[0] * (1 - 1 / size), rtol=1e-12)


def test_single_precision_stays_single():
    prob = token_selection(3, 4, 5, batch=2, dtype=torch.float32)
    for how in ("W", "KQ"):
        traj = train(prob, how, steps=300, ridge=1e-6, norm_eps=1e-6)
        assert {traj.W.dtype, traj.loss.dtype, traj.attention.dtype} == {torch.float32}
        double = train(prob.to(dtype=torch.float64), how, steps=20, ridge=1e-6, norm_eps=1e-6)
        single = train(prob, how, steps=20, ridge=1e-6, norm_eps=1e-6)
        assert torch.allclose(single.W.double(), double.W, atol=1e-4)


@given(seed=st.integers(0, 10**6), parametrization=st.sampled_from(["W", "KQ"]))
def test_rotating_the_space_rotates_the_path_and_permuting_tokens_does_nothing(seed, parametrization):
    prob = token_selection(3, 4, 5, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    U = torch.linalg.qr(torch.randn(5, 5, generator=draw).double()).Q
    order = torch.randperm(4, generator=draw)
    start = 0.3 * torch.randn(2, 5, 3, generator=draw).double()
    product = start[0] @ start[1].mT
    init, turned = (product, U @ product @ U.mT) if parametrization == "W" else (
        tuple(start), tuple(U @ start))
    same = TokenSelection(prob.X[:, order] @ U.mT, prob.z @ U.mT, prob.y, U @ prob.v)
    one = train(prob, parametrization, steps=30, init=init)
    two = train(same, parametrization, steps=30, init=turned)
    assert torch.allclose(U @ one.W @ U.mT, two.W, atol=1e-9)
    assert torch.allclose(one.attention[:, order], two.attention, atol=1e-9)


@given(seed=st.integers(0, 10**6), factor=st.floats(0.1, 10))
def test_scaling_queries_scales_the_rate_of_plain_descent(seed, factor):
    prob = token_selection(3, 4, 5, seed=seed)
    scaled = TokenSelection(prob.X, factor * prob.z, prob.y, prob.v)
    one = train(prob, steps=20, lr=0.5, normalized=False)
    two = train(scaled, steps=20, lr=0.5 / factor**2, normalized=False)
    assert torch.allclose(one.W, factor * two.W, atol=1e-11)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("parametrization", ["W", "KQ"])
def test_cuda_agrees_with_the_cpu_and_never_waits_for_the_host(parametrization):
    prob = token_selection(6, 8, 10, batch=64)
    here = train(prob, parametrization, steps=300, ridge=1e-12)

    def forbid_waiting(progress):
        torch.cuda.set_sync_debug_mode("error" if progress.step < 300 else "default")

    try:
        there = train(prob.to("cuda"), parametrization, steps=300, ridge=1e-12, callback=forbid_waiting)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert there.W.is_cuda and there.attention.is_cuda and there.saturated.is_cuda
    assert torch.allclose(there.W.cpu(), here.W, rtol=0, atol=1e-9)
    assert torch.equal(there.saturated.cpu(), here.saturated)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_hundred_thousand_runs_fit_on_cuda():
    prob = token_selection(6, 8, 10, batch=1000).to("cuda")
    many = TokenSelection(*(a.repeat(100, *[1] * (a.ndim - 1)) for a in (prob.X, prob.z, prob.y, prob.v)))
    torch.cuda.reset_peak_memory_stats()
    short = train(many, steps=2, record=2)
    peak = torch.cuda.max_memory_allocated()
    longer = train(many, steps=200, record=200)
    assert torch.cuda.max_memory_allocated() <= 1.01 * peak
    assert torch.allclose(longer.W[-1, :1000], longer.W[-1, -1000:], rtol=0, atol=1e-9)
    assert short.W.shape == longer.W.shape == (2, 100_000, 10, 10)


@pytest.mark.parametrize("keywords, error, words", [
    (dict(parametrization="QK"), ValueError, "parametrization must be one of 'W', 'KQ', got 'QK'"),
    (dict(parametrization=1), TypeError, "parametrization must be a string"),
    (dict(steps=-1), ValueError, "steps must be at least 0, got -1"),
    (dict(steps=10.0), TypeError, "steps must be an integer"),
    (dict(lr=0), ValueError, "lr must be greater than 0"),
    (dict(lr="fast"), TypeError, "lr must be a real number"),
    (dict(normalized=1), TypeError, "normalized must be True or False"),
    (dict(normalization="all"), ValueError, "normalization must be one of 'joint', 'each'"),
    (dict(norm_eps=-1e-3), ValueError, "norm_eps must be at least 0"),
    (dict(ridge=float("nan")), ValueError, "ridge must be finite"),
    (dict(loss="hinge"), ValueError, "loss must be one of"),
    (dict(head=max), TypeError, "head must be a name"),
    (dict(m=3), ValueError, "m belongs to parametrization 'KQ'"),
    (dict(init=[[1.0]]), ValueError, "init must have shape"),
    (dict(seed=-1), ValueError, "seed must be at least 0"),
    (dict(record=0), ValueError, "record must be at least 1"),
    (dict(record=[1, 99]), ValueError, r"record must list states in 0..10, got 99"),
    (dict(record=[0.5]), TypeError, "record must be an integer"),
    (dict(callback=3), TypeError, "callback must be callable or None"),
    (dict(gradient="autograd"), ValueError, "gradient must be one of 'exact', 'naive'"),
    (dict(prob=None), TypeError, "prob must be a TokenSelection"),
])
def test_bad_arguments_are_refused(keywords, error, words):
    with pytest.raises(error, match=words):
        train(**{**dict(prob=token_selection(2, 3, 4), steps=10), **keywords})
