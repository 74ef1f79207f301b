"""Empirical loss and gradient: reference values, three routes, blocks, stability, memory, bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attncore import preconditioning as pc
from attncore.preconditioning import empirical, kernel

FINITE = json.loads((Path(__file__).parent / "oracles" / "preconditioning.json").read_text())["finite"]
seeds = st.integers(0, 10**6)


def close(found, expected, rtol=1e-12):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=rtol * float(expected.abs().max()))


def sample(seed, n=40, p=2, d=3, size=1.0):
    rng = np.random.default_rng(seed)
    shapes = (p, d), (d, d), (n, d), (n, p)
    A, B, X, Y = (torch.from_numpy(rng.standard_normal(shape)) for shape in shapes)
    return A, size * B, X, Y


def by_autograd(A, B, X, Y, context=None):
    """The definition, differentiated."""
    A, B, context = A.clone().requires_grad_(), B.clone().requires_grad_(), X if context is None else context
    out = torch.softmax(X @ B @ context.mT, -1) @ context @ A.mT
    loss = (out - Y).square().sum() / (2 * len(X))
    return loss.detach(), *torch.autograd.grad(loss, (A, B))


@pytest.mark.parametrize("record", FINITE, ids=lambda record: record["name"])
@pytest.mark.parametrize("route", ["closed", "sdpa"])
@pytest.mark.parametrize("chunk", [None, 1, 4])
def test_reference_values(record, route, chunk):
    A, B, X, Y = (record[k] for k in "ABXY")
    close(pc.attention_weights(B, X), record["attention"])
    close(pc.attention_output(A, B, X, chunk=chunk, route=route), record["outputs"])
    close(pc.empirical_loss(A, B, X, Y, chunk=chunk, route=route), record["loss"])
    loss, *both = pc.empirical_loss_and_gradient(A, B, X, Y, chunk=chunk, route=route)
    close(loss, record["loss"])
    gA, gB = pc.empirical_gradient(A, B, X, Y, chunk=chunk, route=route)
    close(gA, both[0])
    close(gB, both[1])
    close(gA, record["grad_A"])
    close(gB, record["grad_B"])


@given(seeds, st.integers(1, 30), st.integers(1, 4), st.integers(1, 4), st.sampled_from([0.2, 3.0]), st.integers(1, 9))
def test_three_routes_agree(seed, n, p, d, size, chunk):
    A, B, X, Y = sample(seed, n, p, d, size)
    _, *expected = by_autograd(A, B, X, Y)
    scale = max(1.0, *(float(g.abs().max()) for g in expected))
    for route in ("closed", "sdpa"):
        for found, wanted in zip(pc.empirical_gradient(A, B, X, Y, chunk=chunk, route=route), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-11 * scale)


def test_minibatches_attend_to_the_whole_sample():
    A, B, X, Y = sample(0)
    rows = torch.tensor([3, 17, 5])
    loss, gA, gB = by_autograd(A, B, X[rows], Y[rows], X)
    found = pc.empirical_gradient(A, B, X[rows], Y[rows], context=X)
    close(pc.empirical_loss(A, B, X[rows], Y[rows], context=X), loss)
    close(found[0], gA)
    close(found[1], gB)


def test_large_logits_do_not_overflow():
    A, B, X, Y = sample(1, size=400.0)
    _, gA, gB = by_autograd(A, B, X, Y)
    found = pc.empirical_gradient(A, B, X, Y, chunk=7)
    close(found[0], gA, 1e-10)
    torch.testing.assert_close(found[1], gB, rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [1.0, 400.0])
def test_the_kernel_runs_on_torch_as_it_does_on_numpy(monkeypatch, size):
    # The arithmetic of a device without numpy, tried where there is no device.
    A, B, X, Y = sample(2, size=size)
    expected = pc.empirical_gradient(A, B, X, Y, chunk=16)

    class TorchKeys(kernel.Keys):
        def __init__(self, context, rows):
            super().__init__(context, rows)
            self.lib = torch
            self.tiles = [tuple(torch.from_numpy(part) for part in tile) for tile in self.tiles]

    monkeypatch.setattr(empirical.kernel, "Keys", TorchKeys)
    found = pc.empirical_gradient(A, B, X, Y, chunk=16)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


def test_tiles_and_groups_do_not_matter(monkeypatch):
    parts = zip(*(sample(seed, n=70) for seed in range(5)), strict=True)
    A, B, X, Y = (torch.stack(part) for part in parts)
    expected = pc.empirical_gradient(A, B, X, Y)
    monkeypatch.setattr(kernel, "keys_in_tile", lambda rows, d, device: 16)
    monkeypatch.setattr(empirical, "GROUP", 2 * 70 * 32)
    found = pc.empirical_gradient(A, B, X, Y, chunk=32)
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-12)
    single = pc.empirical_gradient(A[3], B[3], X[3], Y[3])
    close(found[1][3], single[1], 1e-12)


def test_shared_parameters_broadcast_over_samples():
    A, B, _, _ = sample(0)
    X, Y = (torch.stack(part) for part in zip(*(sample(seed)[2:] for seed in range(3)), strict=True))
    gA, gB = pc.empirical_gradient(A, B, X, Y)
    assert gA.shape == (3, 2, 3) and gB.shape == (3, 3, 3)
    close(gA[1], pc.empirical_gradient(A, B, X[1], Y[1])[0])
    assert pc.empirical_loss(A, B, X, Y).shape == (3,)


def test_one_token_attends_to_itself():
    A, B, X, Y = sample(0, n=1)
    close(pc.attention_output(A, B, X), X @ A.T)
    assert float(pc.empirical_gradient(A, B, X, Y)[1].abs().max()) < 1e-12


def test_a_block_holds_far_less_than_all_pairs():
    n = 20_000
    X = torch.zeros(1, n, 4, dtype=torch.float64)
    keys = kernel.Keys(X, kernel.rows_in_block(n, X.device))
    tiles, scratch = keys.workspace(1, kernel.rows_in_block(n, X.device))
    assert sum(tile.size for tile in tiles) + scratch.size < n * n / 100


def test_float32_stays_float32_and_close():
    parts = sample(3, n=60)
    found = pc.empirical_gradient(*(part.float() for part in parts))
    assert found[0].dtype == torch.float32
    for one, other in zip(found, pc.empirical_gradient(*parts), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-4 * float(other.abs().max()))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("route", [None, "closed", "sdpa"])
def test_the_device_agrees_with_the_cpu(route):
    parts = sample(4, n=300)
    found = pc.empirical_gradient(*(part.cuda() for part in parts), route=route)
    for one, other in zip(found, pc.empirical_gradient(*parts), strict=True):
        assert one.is_cuda
        close(one.cpu(), other, 1e-10)


@pytest.mark.parametrize(
    "change, error, message",
    [
        (dict(X=torch.zeros(3)), ValueError, "X must have shape"),
        (dict(Y=torch.zeros(3, 2)), ValueError, "Y must have shape"),
        (dict(A=torch.zeros(2, 2)), ValueError, "A must have shape"),
        (dict(B=torch.zeros(2, 2)), ValueError, "B must have shape"),
        (dict(context=torch.zeros(5, 2)), ValueError, "context must have shape"),
        (dict(chunk=0), ValueError, "chunk must be at least 1"),
        (dict(chunk=2.5), TypeError, "chunk must be an integer"),
        (dict(route="fast"), ValueError, "route must be one of"),
        (dict(X=torch.zeros(40, 3, dtype=torch.float16)), ValueError, "X must be float32 or float64"),
        (dict(Y=None), TypeError, "Y"),
        (dict(A=torch.zeros(2, 2, 3), B=torch.zeros(3, 3, 3)), ValueError, "leading axes"),
    ],
)
def test_bad_input(change, error, message):
    arguments = dict(zip("ABXY", sample(0), strict=True)) | change
    with pytest.raises(error, match=message):
        pc.empirical_gradient(**arguments)
