"""attncore.attention: maps, attended vectors, and the module face."""

import math

import numpy as np
import pytest
import torch

from attncore.attention import SelectionAttention, attend, attention_logits, softmax_attention
from attncore.data import token_selection


def test_logits_follow_their_definition():
    rng = np.random.default_rng(0)
    X, W, z = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 4)), rng.normal(size=(2, 4))
    expected = [[X[i, t] @ W @ z[i] for t in range(3)] for i in range(2)]
    assert np.allclose(attention_logits(X, W, z).numpy(), expected, rtol=1e-13)


def test_maps_are_probabilities_with_the_right_ratios():
    prob = token_selection(2, 5, 3, batch=4)
    W = torch.arange(9).reshape(3, 3)
    L, s = attention_logits(prob.X, W, prob.z), softmax_attention(prob.X, W, prob.z)
    assert s.shape == (4, 2, 5)
    assert torch.allclose(s.sum(-1), torch.ones(4, 2).double())
    assert torch.allclose((s[..., 0] / s[..., 1]).log(), L[..., 0] - L[..., 1])


def test_huge_logits_do_not_overflow():
    s = softmax_attention([[[1, 0], [0, 1]]], [[1e4, 0], [0, 0]], [[1, 0]])
    assert s.tolist() == [[1.0, 0.0]]


def test_attended_vector_of_a_uniform_map_is_the_mean():
    prob = token_selection(2, 4, 3)
    assert torch.allclose(attend(prob.X, torch.full((2, 4), 0.25).double()), prob.X.mean(-2))


def test_module_agrees_with_the_functions_in_both_parametrizations():
    prob = token_selection(3, 4, 5, batch=2)
    K, Q = torch.randn(2, 2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = SelectionAttention(prob.v, init=K @ Q.mT)
    factored = SelectionAttention(prob.v, "KQ", init=(K, Q))
    expected = (attend(prob.X, softmax_attention(prob.X, K @ Q.mT, prob.z)) * prob.v[:, None]).sum(-1)
    assert torch.allclose(whole(prob.X, prob.z), expected)
    assert torch.allclose(factored(prob.X, prob.z), expected)
    assert sorted(dict(factored.named_parameters())) == ["K", "Q"]
    assert torch.equal(SelectionAttention(prob.v).W, torch.zeros(2, 5, 5).double())


def test_module_can_be_trained():
    prob = token_selection(2, 3, 4, seed=2)
    model = SelectionAttention(prob.v)
    loss = torch.nn.functional.softplus(-prob.y * model(prob.X, prob.z)).mean()
    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.1 * weight.grad
    assert torch.nn.functional.softplus(-prob.y * model(prob.X, prob.z)).mean() < loss
    assert math.isfinite(loss.item())


@pytest.mark.parametrize("shapes, words", [
    (((3, 4), (4, 4), (3, 4)), "X must have shape"),
    (((2, 3, 4), (4, 5), (2, 4)), "W must have shape"),
    (((2, 3, 4), (4, 4), (3, 4)), "z must have shape"),
])
def test_bad_shapes_are_refused(shapes, words):
    with pytest.raises(ValueError, match=words):
        attention_logits(*(torch.zeros(shape) for shape in shapes))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="attention must have shape"):
        attend(torch.zeros(2, 3, 4), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="parametrization must be one of"):
        SelectionAttention([1.0, 0.0], "QK")
    with pytest.raises(ValueError, match="init must be a pair"):
        SelectionAttention([1.0, 0.0], "KQ")
    with pytest.raises(TypeError, match="X must be"):
        attention_logits("tokens", [[1.0]], [[1.0]])
