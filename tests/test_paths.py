"""attncore.paths: minimisers over balls, and where they lead."""

import pytest
import torch

from attncore import arrays
from attncore.data import TokenSelection, token_selection
from attncore.paths import regularization_path
from attncore.svm import attention_svm
from attncore.training import train


def correlation(A, B):
    return (A * B).sum((-2, -1)) / (torch.linalg.matrix_norm(A) * torch.linalg.matrix_norm(B))


def loss_at(prob, W):
    s = torch.softmax(torch.einsum("...ntd,...de,...ne->...nt", prob.X, W, prob.z), -1)
    f = (torch.einsum("...nt,...ntd->...nd", s, prob.X) * prob.v.unsqueeze(-2)).sum(-1)
    return torch.nn.functional.softplus(-prob.y * f).mean(-1)


@pytest.fixture(scope="module")
def problems():
    return token_selection(4, 5, 6, batch=6, seed=2)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_path_of_W_tends_to_the_frobenius_direction(problems, kind, monkeypatch):
    if kind == "torch":
        monkeypatch.setattr(arrays, "SMALL_PROBLEM", 0)
    svm = attention_svm(problems.X, problems.z, problems.optimal)
    path = regularization_path(problems, [1, 10, 100, 1000], directions=[svm.W])
    assert path.converged.all() and path.boundary.all()
    assert torch.allclose(torch.linalg.matrix_norm(path.W), path.radii[:, None].expand(4, 6), rtol=1e-12)
    corr = correlation(path.W, svm.W)
    assert (corr[-1] > 0.9995).all() and (corr[1:] > corr[:-1]).all()


def test_path_of_K_and_Q_tends_to_the_nuclear_direction(problems):
    few = problems[:2]
    svm = attention_svm(few.X, few.z, few.optimal, norm="nuc")
    path = regularization_path(few, [1, 10, 100, 500], "KQ", directions=[svm.W], tol=1e-6)
    assert path.converged.all() and path.boundary.all()
    size = (path.K.square().sum((-2, -1)) + path.Q.square().sum((-2, -1))) / 2
    assert torch.allclose(size, path.radii[:, None].expand(4, 2), rtol=1e-12)
    # At a stationary point the factors are balanced, and their size is the nuclear norm of the product.
    assert torch.allclose(path.K.mT @ path.K, path.Q.mT @ path.Q, atol=1e-3 * 500)
    assert torch.allclose(torch.linalg.matrix_norm(path.W, "nuc"), size, rtol=1e-4)
    assert (correlation(path.W, svm.W)[-1] > 0.999).all()


def test_counter_example_of_rank_one():
    X = [[[0, 0], [-1, -0.5], [-1, 0.5]], [[0, 0], [-0.5, -1], [0.5, -1]]]
    prob = TokenSelection(X, [[1, 0], [0, 1]], [1, 1], [1, 1])
    ones, identity = torch.ones(2, 2).double(), torch.eye(2).double()
    full = regularization_path(prob, [3, 30, 300], "KQ", directions=[identity], tol=1e-7)
    thin = regularization_path(prob, [3, 30, 300], "KQ", m=1, directions=[ones], tol=1e-7)
    assert correlation(full.W[-1], identity) > 0.9999
    assert correlation(thin.W[-1], ones) > 0.9999
    assert (full.loss <= thin.loss + 1e-9).all()


def test_what_is_found_is_stationary_by_finite_differences(problems):
    path = regularization_path(problems, [2.0, 6.0])
    draw = torch.Generator().manual_seed(0)
    for R, W in zip(path.radii, path.W, strict=True):
        noise = torch.randn(W.shape, generator=draw, dtype=W.dtype)
        tangent = noise - (noise * W).sum((-2, -1), keepdim=True) / R**2 * W
        tangent = R * tangent / torch.linalg.matrix_norm(tangent)[:, None, None]
        for sign in (1e-4, -1e-4):
            turned = W * torch.cos(torch.tensor(sign)) + tangent * torch.sin(torch.tensor(sign))
            change = loss_at(problems, turned) - loss_at(problems, W)
            assert (change.abs() < 1e-6).all()
            assert (change > -1e-12).all()
        assert (loss_at(problems, 0.999 * W) > loss_at(problems, W)).all()
    assert torch.allclose(path.loss[-1], loss_at(problems, path.W[-1]))


def test_minimum_inside_the_ball_is_found_there():
    # The strict local minimum at W e_1 = (.8979, .7358), loss 1.0716, of two sequences with opposite labels.
    X = [[[-4, -3], [-3, 0], [-1, 3], [4, 0]], [[1, 1], [-1, -4], [3, -2], [2, 4]]]
    prob = TokenSelection(X, [[1, 0], [1, 0]], [1, -1], [1, 0])
    near = torch.tensor([[0.5, 0.0], [0.5, 0.0]]).double()
    path = regularization_path(prob, [1.2], directions=[near])
    descent = train(prob, steps=5000, lr=0.2, normalized=False, init=near)
    assert descent.W[-1][:, 0].tolist() == pytest.approx([0.8979, 0.7358], abs=1e-4)
    assert path.converged.all() and not path.boundary.any()
    assert path.W[0][:, 0].tolist() == pytest.approx([0.8979, 0.7358], abs=1e-4)
    assert path.loss.item() == pytest.approx(1.0716, abs=1e-4)


def test_more_directions_never_raise_the_loss(problems):
    alone = regularization_path(problems, [5.0, 50.0])
    svm = attention_svm(problems.X, problems.z, problems.optimal)
    more = regularization_path(problems, [5.0, 50.0], directions=[svm.W, -svm.W])
    assert (more.loss <= alone.loss * (1 + 1e-10)).all()
    assert alone.K is None and alone.W.shape == (2, 6, 6, 6)


def test_problems_without_a_gradient_stay_at_zero():
    prob = token_selection(2, 1, 3)
    path = regularization_path(prob, [1.0, 2.0])
    assert path.converged.all() and not path.W.any()


@pytest.mark.parametrize("keywords, error, words", [
    (dict(radii=[]), ValueError, "radii must be a list of at least one number"),
    (dict(radii=[1.0, -2.0]), ValueError, "radii must be greater than 0"),
    (dict(radii="all"), TypeError, "radii must be"),
    (dict(parametrization="V"), ValueError, "parametrization must be one of"),
    (dict(m=2), ValueError, "m belongs to parametrization 'KQ'"),
    (dict(directions=torch.eye(4)), TypeError, "directions must be a list"),
    (dict(directions=[torch.eye(3)]), ValueError, "must have shape"),
    (dict(tol=0), ValueError, "tol must be greater than 0"),
    (dict(max_iter=0), ValueError, "max_iter must be at least 1"),
    (dict(prob=1), TypeError, "prob must be a TokenSelection"),
])
def test_bad_arguments_are_refused(keywords, error, words):
    with pytest.raises(error, match=words):
        regularization_path(**{**dict(prob=token_selection(2, 3, 4), radii=[1.0]), **keywords})
