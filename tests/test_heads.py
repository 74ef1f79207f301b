"""attncore.heads: values, gradients, names."""

import pytest
import torch

from attncore.heads import HEADS, Head, quadratic_head, relu_head, resolve_head

HERE = [*(make() for make in HEADS.values()), quadratic_head(0.3), relu_head([[1, 2], [0, -1]])]


@pytest.mark.parametrize("head", HERE, ids=lambda head: head.name)
def test_gradient_is_the_derivative(head):
    a = torch.tensor([[[0.5, -1.5], [0.2, 2.0]]], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([[[0.7, -0.4]]], dtype=torch.float64)
    value = head.value(a, v)
    assert value.shape == (1, 2)
    (derivative,) = torch.autograd.grad(value.sum(), a)
    assert torch.allclose(head.gradient(a, v).expand_as(a), derivative)
    assert head.linear == (head.name == "linear")


def test_values_by_hand():
    a, v = torch.tensor([[1.0, -2.0]]).double(), torch.tensor([[3.0, 5.0]]).double()
    assert HEADS["linear"]().value(a, v).tolist() == [-7.0]
    assert HEADS["relu"]().value(a, v).tolist() == [3.0]
    assert quadratic_head(2.0).value(a, v).tolist() == [-17.0]
    assert relu_head([[0, -1], [1, 0]]).value(a, v).tolist() == [11.0]


def test_resolving():
    own = Head("own", lambda a, v: a.sum(-1), lambda a, v: torch.ones_like(a))
    assert resolve_head(own) is own
    assert resolve_head("quadratic").name == "quadratic"
    with pytest.raises(ValueError, match="head must be one of 'linear', 'relu', 'quadratic', got 'mlp'"):
        resolve_head("mlp")
    with pytest.raises(TypeError, match="head must be a name or"):
        resolve_head(3)
    with pytest.raises(ValueError, match="penalty must be at least 0"):
        quadratic_head(-1.0)
    with pytest.raises(ValueError, match="hidden must have shape"):
        relu_head([[1.0, 2.0]])
