"""attncore.gradients: closed forms against autograd, and saturation against 50-digit arithmetic."""

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attncore import arrays
from attncore.data import TokenSelection, token_selection
from attncore.gradients import logit_gradient
from attncore.heads import HEADS, relu_head
from attncore.losses import LOSSES


def logits_for(prob, scale, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(prob.X.shape[:-1], generator=generator, dtype=prob.X.dtype)


def gradient_in_50_digits(prob, logits):
    """Gradient of the mean logistic loss with a linear head with respect to the logits, as mpmath numbers."""
    X, y, v, L = (a.tolist() for a in (prob.X, prob.y, prob.v, logits))
    rows = []
    for i in range(len(X)):
        p = [mpmath.fdot(x, v) for x in X[i]]
        weights = [mpmath.exp(mpmath.mpf(value) - max(L[i])) for value in L[i]]
        Z = mpmath.fsum(weights)
        s = [w / Z for w in weights]
        f = mpmath.fdot(s, p)
        outer = -y[i] / (len(X) * (1 + mpmath.exp(y[i] * f)))
        rows.append([outer * s_t * mpmath.fsum(s_u * (p_t - p_u) for s_u, p_u in zip(s, p, strict=True))
                     for s_t, p_t in zip(s, p, strict=True)])
    return rows


def relative_error(found, exact):
    """Largest error over largest entry of the gradient."""
    scale = mpmath.exp(mpmath.mpf(float(found.log_scale)))
    entries = [(mpmath.mpf(a) * scale, b)
               for row, reference in zip(found.mantissa.tolist(), exact, strict=True)
               for a, b in zip(row, reference, strict=True)]
    return float(max(abs(a - b) for a, b in entries) / max(abs(b) for _, b in entries))


@given(level=st.sampled_from([0.0, 1.0, 10.0, 40.0, 100.0, 1e3, 1e4]), seed=st.integers(0, 10**6))
def test_exact_gradient_agrees_with_50_digits_at_every_level_of_saturation(level, seed):
    prob = token_selection(3, 5, 4, seed=seed)
    logits = logits_for(prob, level, seed)
    with mpmath.workdps(50):
        error = relative_error(logit_gradient(prob, logits), gradient_in_50_digits(prob, logits))
    # The logits are exact, their differences are rounded: that error is eps * |L| in the exponent.
    assert error < 2e-14 + 1e-15 * float(logits.abs().max())


def test_naive_gradient_is_noise_where_the_exact_one_is_not():
    prob, errors = token_selection(3, 5, 4, seed=1), {}
    ladder = -torch.arange(5.0).double().expand(3, 5)
    for gap in (1.0, 20.0, 45.0):
        with mpmath.workdps(50):
            exact = gradient_in_50_digits(prob, gap * ladder)
            errors[gap] = [relative_error(logit_gradient(prob, gap * ladder, gradient=form), exact)
                           for form in ("exact", "naive")]
    assert max(exact_error for exact_error, _ in errors.values()) < 1e-14
    assert errors[1.0][1] < 1e-14
    assert errors[20.0][1] > 1e-9
    assert errors[45.0][1] > 0.5


@pytest.mark.parametrize("duplicate", ["top", "score"])
def test_tokens_that_do_not_contribute_do_not_hide_those_that_do(duplicate):
    base = token_selection(2, 4, 3, seed=2)
    X, v = base.X.clone(), torch.tensor([1.0, 0.0, 0.0]).double()
    X[..., 1, :] = X[..., 0, :]
    if duplicate == "score":
        X[..., 1, 1:] = torch.flip(X[..., 1, 1:], (-1,))
    prob = TokenSelection(X, base.z, base.y, v)
    logits = torch.tensor([[1e3, 1e3, 0.0, -50.0], [1e3, 990.0, 1.0, 0.0]]).double()
    found = logit_gradient(prob, logits)
    with mpmath.workdps(50):
        assert relative_error(found, gradient_in_50_digits(prob, logits)) < 2e-12
    assert found.log_scale < -900


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("head", [*HEADS, "hidden"])
@pytest.mark.parametrize("form", ["exact", "naive"])
def test_closed_form_agrees_with_autograd(head, loss, form):
    prob = token_selection(3, 4, 5, batch=(2, 2), seed=3)
    hidden = torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    head = relu_head(hidden) if head == "hidden" else HEADS[head]()
    logits = logits_for(prob, 2.0).requires_grad_()
    attended = (torch.softmax(logits, -1).unsqueeze(-2) @ prob.X).squeeze(-2)
    margins = prob.y * head.value(attended, prob.v.unsqueeze(-2))
    (expected,) = torch.autograd.grad(LOSSES[loss].value(margins).mean(-1).sum(), logits)
    found = logit_gradient(prob, logits, head=head, loss=loss, gradient=form)
    gradient = found.log_scale.exp()[..., None, None] * found.mantissa
    assert torch.allclose(gradient, expected, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("head", HEADS)
def test_both_kinds_of_array_give_the_same_gradient(head, monkeypatch):
    prob = token_selection(3, 6, 4, batch=5, seed=5)
    for level in (1.0, 2e3):
        logits = logits_for(prob, level)
        small = logit_gradient(prob, logits, head=head)
        with monkeypatch.context() as patch:
            patch.setattr(arrays, "SMALL_PROBLEM", 0)
            large = logit_gradient(prob, logits, head=head)
        # NumPy leaves the scale alone while nothing can underflow; the gradient is the same.
        factor = (small.log_scale - large.log_scale).exp()[:, None, None]
        assert torch.allclose(factor * small.mantissa, large.mantissa, rtol=1e-9, atol=1e-13)


def test_slopes_beyond_floating_point_still_weigh_the_sequences():
    X = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 1.0]]]).double()
    prob = TokenSelection(1000 * X, torch.ones(2, 2), torch.ones(2), torch.tensor([1.0, 0.5]).double())
    found = logit_gradient(prob, torch.zeros(2, 2), loss="exponential")
    # Margins 750 and 1250: the slopes exp(-750), exp(-1250) underflow, their ratio exp(-500) is what counts.
    assert found.mantissa[0].tolist() == pytest.approx([-62.5, 62.5])
    assert found.mantissa[1].abs().max() == pytest.approx(187.5 * np.exp(-500.0), rel=1e-10)
    assert found.log_scale == pytest.approx(-750.0)


def test_zero_gradient_is_zero_and_finite():
    prob = token_selection(2, 1, 3)
    found = logit_gradient(prob, torch.full((2, 1), 3.0))
    assert found.mantissa.tolist() == [[0.0], [0.0]]
    flat = TokenSelection(prob.X.expand(2, 4, 3), prob.z, prob.y, prob.v)
    found = logit_gradient(flat, logits_for(flat, 1e3))
    assert not found.mantissa.any()
    assert torch.isfinite(found.log_scale)


def test_bad_arguments_are_refused():
    prob = token_selection(2, 3, 4)
    with pytest.raises(TypeError, match="prob must be a TokenSelection"):
        logit_gradient(prob.X, torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"logits must have shape \(2, 3\)"):
        logit_gradient(prob, torch.zeros(2, 4))
    with pytest.raises(ValueError, match="gradient must be one of 'exact', 'naive', got 'fast'"):
        logit_gradient(prob, torch.zeros(2, 3), gradient="fast")
