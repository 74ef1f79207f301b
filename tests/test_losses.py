"""attncore.losses: values, slopes, names."""

import pytest
import torch

from attncore.losses import LOSSES, Loss, resolve_loss


@pytest.mark.parametrize("name", LOSSES)
def test_slope_is_minus_the_derivative(name):
    u = torch.linspace(-3, 3, 13, dtype=torch.float64, requires_grad=True)
    loss = LOSSES[name]
    (derivative,) = torch.autograd.grad(loss.value(u).sum(), u)
    assert torch.allclose(-loss.log_slope(u).exp(), derivative, rtol=1e-13)


def test_values_by_hand():
    u = torch.tensor([0.0, 2.0]).double()
    assert torch.allclose(LOSSES["logistic"].value(u), torch.log1p(torch.exp(-u)))
    assert torch.allclose(LOSSES["exponential"].value(u), torch.exp(-u))
    assert torch.equal(LOSSES["correlation"].value(u), -u)


def test_logistic_slope_neither_overflows_nor_vanishes():
    u = torch.tensor([-1e3, 30.0, 1e3]).double()
    expected = torch.tensor([0.0, -30.0, -1e3]).double()
    assert torch.allclose(LOSSES["logistic"].log_slope(u), expected, atol=1e-12)


def test_resolving():
    assert resolve_loss("logistic") is LOSSES["logistic"]
    own = Loss("own", torch.neg, torch.zeros_like)
    assert resolve_loss(own) is own
    with pytest.raises(ValueError, match="loss must be one of 'logistic', 'exponential', 'correlation', got"):
        resolve_loss("hinge")
    with pytest.raises(TypeError, match="loss must be a name or"):
        resolve_loss(torch.neg)
