"""attncore.weights: where training starts."""

import pytest
import torch

from attncore.data import token_selection
from attncore.weights import gaussian_start, start_weights


def test_start_of_a_problem_depends_on_seed_and_number_only():
    K, Q = gaussian_start((2, 3), 4, 2, seed=9)
    assert K.shape == Q.shape == (2, 3, 4, 2)
    fewer = gaussian_start((4,), 4, 2, seed=9)
    assert torch.equal(fewer[0], K.reshape(6, 4, 2)[:4])
    assert torch.equal(fewer[1], Q.reshape(6, 4, 2)[:4])
    assert not torch.equal(gaussian_start((1,), 4, 2, seed=10)[0][0], K[0, 0])


def test_start_has_the_published_variance_and_two_independent_factors():
    d = 6
    K, Q = gaussian_start((400,), d, 5)
    for M in (K, Q):
        assert M.var() == pytest.approx(1 / (3 * d), rel=0.05)
        assert abs(M.mean()) < 5 * (1 / (3 * d) / M.numel()) ** 0.5
    assert abs((K * Q).mean()) < 5 / (3 * d) / K.numel() ** 0.5
    assert torch.equal(gaussian_start((2,), d, 5, scale=0.0)[0], torch.zeros(2, d, 5).double())


def test_start_is_independent_of_data_of_the_same_seed():
    prob = token_selection(5, 8, 6, batch=200, seed=3)
    pair = torch.stack(gaussian_start((200,), 6, 8, seed=3), 1).flatten(1)
    data = prob.X.flatten(1)[:, :pair.shape[1]]  # in the order of the draws: one stream for both would show
    assert abs(torch.corrcoef(torch.stack([data.flatten(), pair.flatten()]))[0, 1]) < 5 / pair.numel() ** 0.5


def test_defaults_and_broadcast():
    prob = token_selection(2, 3, 4, batch=(2, 2), dtype=torch.float32)
    (W,) = start_weights(prob, "W", None, None, 0)
    assert W.shape == (2, 2, 4, 4) and W.dtype == torch.float32 and not W.any()
    K, Q = start_weights(prob, "KQ", None, None, 0)
    assert K.shape == Q.shape == (2, 2, 4, 4)
    K, Q = start_weights(prob, "KQ", None, ([[1], [2], [3], [4]], torch.ones(2, 2, 4, 1)), 0)
    assert K.shape == Q.shape == (2, 2, 4, 1) and K.dtype == torch.float32


@pytest.mark.parametrize("parametrization, m, init, error, words", [
    ("W", 3, None, ValueError, "m belongs to parametrization 'KQ'"),
    ("W", None, torch.zeros(3, 4), ValueError, r"init must have shape \(4, 4\), got"),
    ("W", None, "zeros", TypeError, "init must be a tensor"),
    ("W", None, torch.full((4, 4), torch.nan), ValueError, "init must be finite"),
    ("KQ", 0, None, ValueError, "m must be at least 1"),
    ("KQ", 2.0, None, TypeError, "m must be an integer"),
    ("KQ", None, torch.zeros(4, 4), ValueError, r"init must be a pair \(K0, Q0\)"),
    ("KQ", 3, (torch.zeros(4, 2), torch.zeros(4, 2)), ValueError, r"init\[0\] must have shape"),
    ("KQ", None, (torch.zeros(4, 2), torch.zeros(4, 3)), ValueError, "K0 and Q0 of one shape"),
    ("KQ", None, (torch.zeros(2, 4, 2), torch.zeros(4, 2)), ValueError, r"init\[0\] must have shape"),
])
def test_bad_starts_are_refused(parametrization, m, init, error, words):
    with pytest.raises(error, match=words):
        start_weights(token_selection(2, 3, 4), parametrization, m, init, 0)
