"""The fitted algorithm: what it estimates, invariances, convergence, opponents, status, prediction, bad input."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from attncore import preconditioning as pc

FINITE = json.loads((Path(__file__).parent / "oracles" / "preconditioning.json").read_text())["finite"]
S = np.linspace(0.3, 0.15, 3)


def close(found, expected, rtol=1e-12):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=rtol * float(expected.abs().max()))


def task(seed=0, n=200, **options):
    return pc.gaussian_task(n, S, **(dict(noise=0.1, kappa=10.0, seed=seed) | options))


@pytest.mark.parametrize("record", FINITE, ids=lambda record: record["name"])
def test_reference_values(record):
    A, B, X, Y = (record[k] for k in "ABXY")
    found = pc.fit(X, Y, steps=1, lr=record["eta"], lam=record["lam"], init=(A, B), tau=1.0)
    for name in ("Sigma", "M"):
        close(getattr(found, name), record[f"{name}_hat"])
    close(found.A, record["step_A"])
    close(found.B, record["step_B"])


def test_start_scale_and_history():
    data = task()
    found = pc.fit(data.X, data.Y, steps=7, record=[3], tol=0)
    close(found.Sigma, data.X.T @ data.X / 200)
    close(found.M @ found.Sigma, data.Y.T @ data.X / 200, 1e-10)
    s = pc.singular_values(found.Sigma, found.M)
    assert float(found.tau) == pytest.approx(max(float(s.sum()), 4 * float(s[0])))
    assert found.history.steps.tolist() == [0, 3, 7]
    close(found.history.A[0] @ found.Sigma @ found.history.B[0].T, found.M, 1e-10)
    for row in range(3):
        close(found.history.loss[row], pc.empirical_loss(found.history.A[row], found.history.B[row], data.X, data.Y))
    close(found.A, found.history.A[-1])
    assert found.messages == [pc.Status.FINISHED.message]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.A = 0


def test_estimates_are_those_of_the_fit_batched_or_not():
    data = task(batch=2)
    both = pc.estimate(data.X, data.Y, ridge=0.1)
    for b in range(2):
        one, found = pc.estimate(data.X[b], data.Y[b], ridge=0.1), pc.fit(data.X[b], data.Y[b], ridge=0.1, steps=0)
        assert one.tau.shape == ()
        for name in ("Sigma", "M", "tau"):
            close(getattr(one, name), getattr(found, name))
            close(getattr(both, name)[b], getattr(found, name))
    # A relative ridge adds its share of the mean eigenvalue and regresses with it.
    plain = data.X[0].T @ data.X[0] / 200
    close(one.Sigma.trace(), 1.1 * (data.X[1].T @ data.X[1]).trace() / 200)
    close(pc.estimate(data.X[0], data.Y[0]).Sigma, plain)
    close(one.M @ one.Sigma, data.Y[1].T @ data.X[1] / 200, 1e-10)


def test_rank_one_targets_keep_the_logits_small():
    X = task().X
    found = pc.fit(X, X[:, :1], steps=0)
    s = pc.singular_values(found.Sigma, found.M)
    assert float(found.tau) == pytest.approx(4 * float(s[0]))
    assert float(pc.whiten(found.A, found.B, found.Sigma)[1].square().sum().sqrt()) == pytest.approx(0.5)


def test_the_preconditioned_iteration_does_not_see_the_condition_number():
    # Change coordinates x -> C x by a matrix of condition number 1000: the run is the same run.
    data = task(kappa=1.0)
    rng = np.random.default_rng(0)
    V = torch.from_numpy(np.linalg.qr(rng.standard_normal((3, 3)))[0])
    C = V @ torch.diag(torch.tensor([1.0, 0.03, 0.001], dtype=torch.float64)) @ V.T
    inverse = torch.linalg.inv(C)
    A0, B0 = (torch.from_numpy(rng.standard_normal((3, 3)) / 2) for _ in "AB")
    options = dict(steps=60, record=20, tol=0)
    one = pc.fit(data.X, data.Y, init=(A0, B0), **options)
    two = pc.fit(data.X @ C, data.Y, init=(A0 @ inverse, inverse @ B0 @ inverse), **options)
    close(two.history.loss, one.history.loss, 1e-9)
    close(two.A @ C, one.A, 1e-8)
    close(C @ two.B @ C, one.B, 1e-8)
    plain = [
        pc.fit(x, data.Y, init=start, method="gd", **options).history.loss[-1]
        for x, start in ((data.X, (A0, B0)), (data.X @ C, (A0 @ inverse, inverse @ B0 @ inverse)))
    ]
    assert float(plain[1]) > 1.5 * float(plain[0])


@pytest.mark.parametrize("method", ["preconditioned", "gd", "sgd", "adam"])
@pytest.mark.parametrize("init", ["spectral", "random"])
def test_targets_in_other_units_give_the_same_layer(method, init):
    data = task()
    one, two = (pc.fit(data.X, c * data.Y, method=method, init=init, steps=20, seed=3) for c in (1.0, 1000.0))
    close(two.A, 1000 * one.A, 1e-9)
    close(two.B, one.B, 1e-9)
    close(two.history.loss, 1e6 * one.history.loss, 1e-9)


@pytest.mark.parametrize("p, d", [(3, 3), (5, 3), (2, 4), (1, 1)])
def test_random_starts_reach_what_the_spectral_start_reaches(p, d):
    data = pc.gaussian_task(200, S[: min(p, d)], d=d, p=p, kappa=100.0, noise=0.1, seed=1)
    ends = [pc.fit(data.X, data.Y, init=init, steps=300, seed=5).history.loss[-1] for init in ("spectral", "random")]
    assert float(ends[1]) < 1.05 * float(ends[0])


def test_plain_descent_is_slow_when_tokens_are_badly_conditioned():
    data = task(kappa=1000.0)
    ours, plain = (
        float(pc.fit(data.X, data.Y, init="random", method=method, steps=200, seed=1).history.loss[-1])
        for method in ("preconditioned", "gd")
    )
    assert plain > 2 * ours


def test_the_default_step_of_plain_descent_is_safe_for_large_tokens():
    """Without the factor |Sigma|^2 in the step the same run diverges."""
    Sigma, M = torch.diag(torch.tensor([100.0, 1.0])).double(), [[0.3, 0.1], [0.05, 0.2]]
    run = pc.descend([[0.2, 0.1], [-0.1, 0.2]], [[0.02, 0.1], [0.0, 0.3]], Sigma, M, method="gd", steps=100, record=1)
    total = run.history.loss + 0.5 * run.history.balance
    assert run.status == pc.Status.FINISHED and (total.diff() < 0).all()


def test_adam_is_that_of_torch():
    Sigma, M = torch.diag(torch.tensor([3.0, 1.0])).double(), torch.tensor([[0.3, 0.1], [0.05, 0.2]]).double()
    A, B = (torch.tensor(start).double() for start in ([[0.2, 0.1], [-0.1, 0.2]], [[0.5, 0.1], [0.0, 0.3]]))
    run = pc.descend(A, B, Sigma, M, method="adam", lr=0.05, steps=30, lam=0.5)
    adam = torch.optim.Adam([A, B], lr=0.05)
    for _ in range(30):
        A.grad, B.grad = pc.population_gradient(A, B, Sigma, M, 0.5)
        adam.step()
    torch.testing.assert_close(run.A, A)
    torch.testing.assert_close(run.B, B)


def test_population_risk_falls_like_one_over_n():
    risks = []
    for n in (200, 3200):
        data = pc.gaussian_task(n, 0.1 * S, noise=0.2, seed=0, batch=40)
        found = pc.estimate(data.X, data.Y)
        risks.append(float(pc.population_loss(*pc.spectral_init(found.Sigma, found.M), data.Sigma, data.M).mean()))
    assert math.log(risks[0] / risks[1]) / math.log(16) == pytest.approx(1.0, abs=0.15)
    assert 3200 * risks[1] == pytest.approx(pc.start_risk(0.1 * S, 3, 3, 0.2), rel=0.25)


def test_a_batch_is_its_problems_and_a_seed_is_its_run():
    data = task(batch=3)
    options = dict(method="sgd", init="random", steps=30, seed=4)
    together, first = pc.fit(data.X, data.Y, **options), pc.fit(data.X[:1], data.Y[:1], **options)
    assert together.A.shape == (3, 3, 3) and together.tau.shape == (3,) and together.history.loss.shape[1:] == (3,)
    close(together.A[:1], first.A, 1e-9)
    # The same draws; the last bits of a product may depend on where in memory its factors lie.
    close(pc.fit(data.X, data.Y, **options).A, together.A, 1e-11)
    other = pc.fit(data.X, data.Y, **(options | dict(seed=5)))
    assert float((other.A - together.A).abs().max()) > 1e-2 * float(together.A.abs().max())
    state = torch.random.get_rng_state(), np.random.get_state()[1].tolist()
    pc.fit(data.X, data.Y, **options)
    assert torch.equal(state[0], torch.random.get_rng_state()) and state[1] == np.random.get_state()[1].tolist()


def test_divergence_is_a_status_and_spares_the_others():
    data = task(batch=2)
    Y = torch.stack([data.Y[0], data.Y[1]])
    bad = pc.fit(data.X, Y, method="sgd", init="random", lr=200.0, steps=300, tau=1.0)
    assert bad.status.tolist() == [pc.Status.DIVERGED] * 2 and "smaller lr" in bad.messages[0]
    assert bool(torch.isfinite(bad.A).all()) and bool(torch.isnan(bad.history.loss[-1]).all())
    far = torch.stack([torch.eye(3, dtype=torch.float64) * size for size in (1.0, 1e3)])
    mixed = pc.fit(data.X, Y, method="gd", init=(far, far), lr=0.5, steps=40, tau=1.0)
    assert mixed.status.tolist() == [pc.Status.FINISHED, pc.Status.DIVERGED]
    alone = pc.fit(data.X[0], Y[0], method="gd", init=(far[0], far[0]), lr=0.5, steps=40, tau=1.0)
    close(mixed.A[0], alone.A, 1e-9)


def test_convergence_and_callback_stop_a_run():
    data = task()
    done = pc.fit(data.X, data.Y, steps=3000, tol=1e-4, record=1000)
    assert done.status.item() == pc.Status.CONVERGED and int(done.history.steps[-1]) < 3000
    seen = []

    def stop(step, A, B, loss):
        seen.append((step, A.shape, float(loss)))
        return step >= 10

    found = pc.fit(data.X, data.Y, steps=100, record=5, tol=0, callback=stop)
    assert [step for step, _, _ in seen] == [0, 5, 10] and found.history.steps.tolist() == [0, 5, 10]
    assert found.status.item() == pc.Status.STOPPED
    assert seen[-1][2] == pytest.approx(float(pc.empirical_loss(found.A, found.B, data.X, data.Y)), rel=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_momentum_and_adam_descend(momentum):
    data = task()
    method = "gd" if momentum else "adam"
    found = pc.fit(data.X, data.Y, init="random", method=method, momentum=momentum, steps=150)
    assert float(found.history.loss[-1]) < 0.5 * float(found.history.loss[0])


def test_prediction_uses_the_tokens_of_the_fit_unless_told_otherwise():
    data, new = task(), task(seed=9)
    found = pc.fit(data.X, data.Y, steps=20)
    close(found.predict(data.X), pc.attention_output(found.A, found.B, data.X))
    close(found.predict(new.X)[:5], found.predict(new.X[:5]))
    close(found.predict(new.X, context=new.X), pc.attention_output(found.A, found.B, new.X))
    with pytest.raises(ValueError, match="X must have shape"):
        found.predict(torch.zeros(4, 2))
    big = pc.gaussian_task(4000, S, noise=0.0, seed=3)
    found = pc.fit(big.X, big.Y, steps=0)
    held = pc.gaussian_task(200, S, seed=3, batch=()).X
    assert float((found.predict(held) - held @ big.M.T).square().mean() / (held @ big.M.T).square().mean()) < 0.05


def test_uncentred_tokens_need_an_intercept():
    data = task(n=1000)
    shift = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    X, Y = data.X + shift, data.Y + 3.0
    with pytest.raises(ValueError, match="pass intercept=True"):
        pc.fit(X, Y)
    moved, still = pc.fit(X, Y, intercept=True, steps=20), pc.fit(data.X, data.Y, intercept=True, steps=20)
    close(moved.A, still.A, 1e-9)
    close(moved.predict(X), still.predict(data.X) + 3.0, 1e-9)


def test_singular_tokens_need_a_ridge():
    data = task()
    X = torch.cat([data.X, data.X[:, :1]], 1)
    with pytest.raises(ValueError, match="pass ridge=1e-6"):
        pc.fit(X, data.Y)
    found = pc.fit(X, data.Y, ridge=1e-6, steps=20)
    plain = pc.fit(data.X, data.Y, steps=20)
    close(found.predict(X), plain.predict(data.X), 1e-3)
    with pytest.raises(ValueError, match="n >= d"):
        pc.fit(data.X[:2], data.Y[:2])
    assert pc.fit(data.X[:2], data.Y[:2], ridge=0.1, steps=5).A.shape == (3, 3)


def test_float32_runs_in_float32():
    data = task()
    found = pc.fit(data.X.float(), data.Y.float(), steps=20)
    assert found.A.dtype == torch.float32
    close(found.A.double(), pc.fit(data.X, data.Y, steps=20).A, 1e-3)


@pytest.mark.parametrize(
    "change, error, message",
    [
        (dict(method="newton"), ValueError, "method must be one of"),
        (dict(method=3), TypeError, "method must be a string"),
        (dict(init="zeros"), ValueError, "init must be one of"),
        (dict(init=3), TypeError, "init must be"),
        (dict(init=(torch.zeros(2, 2), torch.zeros(3, 3))), ValueError, "A0 must have shape"),
        (dict(steps=-1), ValueError, "steps must be at least 0"),
        (dict(lam=-0.5), ValueError, "lam must be at least 0"),
        (dict(lr=0.0), ValueError, "lr must be greater than 0"),
        (dict(momentum=1.0), ValueError, "momentum must lie in"),
        (dict(momentum=0.5, method="adam"), ValueError, "momentum must lie in"),
        (dict(record=[300]), ValueError, "record must lie in"),
        (dict(record=0), ValueError, "record must be at least 1"),
        (dict(minibatch=0), ValueError, "minibatch must be at least 1"),
        (dict(tau=0.0), ValueError, "tau must be greater than 0"),
        (dict(ridge=-1.0), ValueError, "ridge must be at least 0"),
        (dict(intercept=1), TypeError, "intercept must be True or False"),
        (dict(callback=3), TypeError, "callback must be callable"),
        (dict(seed=-1, init="random"), ValueError, "seed must be at least 0"),
        (dict(X=torch.zeros(4)), ValueError, "X must have shape"),
        (dict(Y=torch.zeros(7, 3)), ValueError, "Y must have one row a token"),
        (dict(Y=torch.zeros(200, 3)), ValueError, "Y must not be zero"),
        (dict(Y=torch.ones(200, 3, dtype=torch.complex64)), ValueError, "Y must be float32"),
    ],
)
def test_bad_input(change, error, message):
    data = task()
    with pytest.raises(error, match=message):
        pc.fit(**(dict(X=data.X, Y=data.Y) | change))


def test_population_descent_refuses_minibatches():
    eye = torch.eye(2)
    with pytest.raises(ValueError, match="without a sample"):
        pc.descend(eye, eye, eye, eye, method="sgd")
