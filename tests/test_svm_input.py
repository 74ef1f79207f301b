"""Bad input is refused by name; good input of every accepted kind gives the same answer."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch

from attncore.svm import Solution, Status, attention_svm

X = np.random.default_rng(0).normal(size=(2, 3, 4))
Z = np.random.default_rng(1).normal(size=(2, 4))


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ((X[0], Z, [0, 0]), ValueError, r"X must have shape \(\.\.\., n, T, d\)"),
        ((X[:, :0], Z, [0, 0]), ValueError, "X must have shape"),
        ((X, Z[:1], [0, 0]), ValueError, "z must have shape"),
        ((X, Z[:, :3], [0, 0]), ValueError, "z must have shape"),
        ((X, Z, [0]), ValueError, r"selected must have shape \(\.\.\., 2\)"),
        ((X, Z, [0, 3]), ValueError, r"selected must lie in 0\.\.2"),
        ((X, Z, [-1, 0]), ValueError, "selected must lie in"),
        ((X, Z, [0.0, 1.0]), TypeError, "selected must hold integers"),
        (("tokens", Z, [0, 0]), TypeError, "X must be"),
        ((X, None, [0, 0]), TypeError, "z must be"),
        ((X.astype(complex), Z, [0, 0]), ValueError, "X must be float32 or float64"),
        ((X.astype(np.float16), Z, [0, 0]), ValueError, "X must be float32 or float64"),
        ((X * np.nan, Z, [0, 0]), ValueError, "X must be finite"),
        ((np.stack([X, X]), np.stack([Z, Z, Z]), [0, 0]), ValueError, "leading axes that broadcast"),
    ],
)
def test_bad_arrays_are_named(arguments, error, says):
    with pytest.raises(error, match=says):
        attention_svm(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"norm": "l1"}, ValueError, "norm must be one of 'fro', 'nuc'"),
        ({"norm": 2}, TypeError, "norm must be a string"),
        ({"tol": 0.0}, ValueError, "tol must be greater than 0"),
        ({"tol": -1e-3}, ValueError, "tol must be greater than 0"),
        ({"tol": "small"}, TypeError, "tol must be a real number"),
        ({"tol": float("nan")}, ValueError, "tol must be finite"),
    ],
)
def test_bad_options_are_named(options, error, says):
    with pytest.raises(error, match=says):
        attention_svm(X, Z, [0, 0], **options)


def test_lists_arrays_and_tensors_agree_and_dtypes_follow():
    expected = attention_svm(X, Z, [0, 1]).W
    assert expected.dtype == torch.float64
    for convert in (np.ndarray.tolist, torch.from_numpy):
        torch.testing.assert_close(attention_svm(convert(X), convert(Z), torch.tensor([0, 1])).W, expected)
    single = attention_svm(torch.from_numpy(X).float(), torch.from_numpy(Z).float(), [0, 1])
    assert single.W.dtype == single.value.dtype == torch.float32 and single.status == Status.OPTIMAL
    torch.testing.assert_close(single.W.double(), expected, rtol=1e-4, atol=1e-4)
    assert attention_svm([[[1, 2], [3, 4]]], [[1, 1]], [0]).W.dtype == torch.float64


def test_gradients_are_not_tracked_and_inputs_are_not_changed():
    tokens = torch.from_numpy(X.copy()).requires_grad_()
    before = tokens.detach().clone()
    assert not attention_svm(tokens, Z, [0, 1]).W.requires_grad
    assert torch.equal(tokens, before)


def test_solutions_are_frozen_and_say_what_to_do():
    solution = attention_svm(X, Z, [0, 1])
    with pytest.raises(dataclasses.FrozenInstanceError):
        solution.W = None
    assert isinstance(solution, Solution) and solution.message == Status.OPTIMAL.message
    assert attention_svm(X[None], Z[None], [[0, 1]]).message == f"1 of 1: {Status.OPTIMAL.message}"
    for status in Status:
        assert status.message.endswith(".") and len(status.message) > 40


def test_a_tolerance_out_of_reach_is_reported_as_approximate():
    rng = np.random.default_rng(0)
    tokens, queries = rng.normal(size=(20, 6, 8, 10)), rng.normal(size=(20, 6, 10))
    solution = attention_svm(tokens, queries, [0] * 6, tol=1e-17)
    reached = solution.gap <= 1e-17
    assert not reached.all()
    assert ((solution.status == Status.OPTIMAL) == reached).all()
    assert (solution.status[~reached] == Status.APPROXIMATE).all() and (solution.gap < 1e-12).all()


def test_no_modelling_language_is_imported():
    script = (
        "import sys, attncore.svm as s\n"
        "s.attention_svm([[[1., 0.], [0., 0.]]], [[1., 0.]], [0])\n"
        "s.attention_svm([[[1., 0.], [0., 0.]]], [[1., 0.]], [0], norm='nuc')\n"
        "assert 'cvxpy' not in sys.modules and 'clarabel' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_answers_live_where_the_tokens_live():
    on_gpu = attention_svm(torch.from_numpy(X).cuda(), torch.from_numpy(Z).cuda(), [0, 1])
    assert on_gpu.W.device.type == on_gpu.status.device.type == on_gpu.rank.device.type == "cuda"
    torch.testing.assert_close(on_gpu.W.cpu(), attention_svm(X, Z, [0, 1]).W)
