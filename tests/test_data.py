"""attncore.data: seeded token-selection problems."""

import numpy as np
import pytest
import torch

from attncore.data import TokenSelection, token_selection


def arrays(n=3, T=4, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X, z, v = rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), rng.normal(size=d)
    return X, z, np.array([1.0, -1.0, 1.0])[:n], v


def test_scores_and_optimal_follow_their_definition():
    X, z, y, v = arrays()
    prob = TokenSelection(X, z, y, v)
    expected = np.array([[y[i] * v @ X[i, t] for t in range(4)] for i in range(3)])
    assert np.allclose(prob.scores.numpy(), expected, rtol=1e-14)
    assert prob.optimal.tolist() == expected.argmax(-1).tolist()
    assert prob.optimal.dtype == torch.int64


def test_optimal_of_the_reference_problems(oracle_trajectories):
    for k in (0, 1):
        prob = TokenSelection(*(oracle_trajectories[f"{k}_{name}"] for name in "Xzyv"))
        assert prob.optimal.tolist() == oracle_trajectories[f"{k}_opt"].tolist()


def test_problem_is_frozen():
    prob = token_selection(2, 3, 4)
    with pytest.raises(AttributeError):
        prob.X = prob.X * 2


def test_integers_and_lists_become_float64():
    prob = TokenSelection([[[1, 0], [0, 1]]], [[1, 0]], [1], [1, 0])
    assert {a.dtype for a in (prob.X, prob.z, prob.y, prob.v, prob.scores)} == {torch.float64}


def test_draws_are_on_the_unit_sphere_with_fair_labels():
    prob = token_selection(6, 8, 10, seed=3, batch=200)
    for value in (prob.X, prob.z, prob.v):
        assert torch.allclose(value.norm(dim=-1), torch.ones(()).double(), atol=1e-14)
        mean = value.reshape(-1, 10).mean(0)
        assert mean.abs().max() < 5 / (10 * value.reshape(-1, 10).shape[0]) ** 0.5
    assert set(prob.y.unique().tolist()) == {-1.0, 1.0}
    assert abs(prob.y.mean()) < 5 / prob.y.numel() ** 0.5


def test_problem_depends_on_seed_and_number_only():
    batch = token_selection(3, 4, 5, seed=7, batch=(4, 3))
    smaller = token_selection(3, 4, 5, seed=7, batch=5)
    for b in range(12):
        single = token_selection(3, 4, 5, seed=7, start=b)
        row = batch[b // 3, b % 3]
        for name in "Xzyv":
            assert torch.equal(getattr(single, name), getattr(row, name))
            if b < 5:
                assert torch.equal(getattr(single, name), getattr(smaller[b], name))
    other = token_selection(3, 4, 5, seed=8)
    assert not torch.equal(other.X, batch[0, 0].X)


def test_draws_leave_global_random_state_alone():
    torch.manual_seed(1)
    np.random.seed(1)
    expected = torch.rand(3), np.random.rand(3)
    torch.manual_seed(1)
    np.random.seed(1)
    token_selection(2, 3, 4, seed=5)
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])


def test_self_attention_queries_are_the_first_tokens_and_change_no_other_draw():
    cross, own = token_selection(3, 4, 5, batch=2), token_selection(3, 4, 5, batch=2, self_attention=True)
    assert torch.equal(own.z, own.X[..., 0, :])
    for name in "Xyv":
        assert torch.equal(getattr(own, name), getattr(cross, name))


def test_single_precision_is_the_rounded_double():
    double, single = token_selection(3, 4, 5), token_selection(3, 4, 5, dtype=torch.float32)
    assert single.X.dtype == torch.float32
    assert torch.equal(single.X, double.X.float())
    assert torch.equal(double.to(dtype=torch.float32).z, single.z)


def test_shared_head_is_expanded_over_the_batch():
    batch = token_selection(2, 3, 4, batch=5)
    prob = TokenSelection(batch.X, batch.z, batch.y, batch.v[0])
    assert prob.v.shape == (5, 4)
    assert torch.equal(prob[3].scores, TokenSelection(batch.X[3], batch.z[3], batch.y[3], batch.v[0]).scores)


@pytest.mark.parametrize("name, change, error, words", [
    ("X", lambda a: a[0, 0], ValueError, "X must have shape"),
    ("X", lambda a: a[:, :0], ValueError, "no empty axis"),
    ("X", lambda a: a.astype(np.float16), ValueError, "X must be float32 or float64"),
    ("X", lambda a: a + 1j, ValueError, "X must be float32 or float64"),
    ("X", lambda a: np.where(a > 1, np.nan, a), ValueError, "X must be finite"),
    ("X", lambda a: "tokens", TypeError, "X must be"),
    ("z", lambda a: a[:2], ValueError, r"z must have shape \(3, 5\)"),
    ("y", lambda a: a * 2, ValueError, "labels -1 or"),
    ("y", lambda a: a[:1], ValueError, r"y must have shape \(3,\)"),
    ("v", lambda a: a[:4], ValueError, r"v must have shape \(5,\)"),
])
def test_bad_problem_is_refused(name, change, error, words):
    given = dict(zip("Xzyv", arrays(seed=1), strict=True))
    given[name] = change(given[name])
    with pytest.raises(error, match=words):
        TokenSelection(**given)


@pytest.mark.parametrize("arguments, error, words", [
    (dict(n=0), ValueError, "n must be at least 1, got 0"),
    (dict(T=2.5), TypeError, "T must be an integer, got 2.5"),
    (dict(seed=-1), ValueError, "seed must be at least 0"),
    (dict(batch=(2, 0)), ValueError, "batch must be at least 1"),
    (dict(batch="many"), TypeError, "batch must be an integer"),
    (dict(self_attention=1), TypeError, "self_attention must be True or False"),
    (dict(dtype=torch.float16), ValueError, "dtype must be torch.float32, torch.float64 or None"),
    (dict(start=-1), ValueError, "start must be at least 0"),
])
def test_bad_generator_arguments_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        token_selection(**{**dict(n=2, T=3, d=4), **arguments})


def test_a_single_problem_cannot_be_indexed():
    with pytest.raises(ValueError, match="cannot be indexed"):
        token_selection(2, 3, 4)[0]
