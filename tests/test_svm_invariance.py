"""What must not matter: the order of tokens, the frame, the scale of queries, copies of tokens, the batch."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from svm_problems import problem, separable

from attncore.svm import Status, attention_svm

SEEDS = st.sampled_from([seed for seed in range(80) if separable(*problem("plain", seed))])


def close(actual, expected, scale):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-7, atol=1e-7 * float(scale))


@given(SEEDS, st.integers(0, 2**31))
def test_permuting_tokens_permutes_the_duals(seed, shuffle):
    X, z, selected = problem("plain", seed)
    order = np.random.default_rng(shuffle).permutation(X.shape[1])
    plain = attention_svm(X, z, selected)
    moved = attention_svm(X[:, order], z, np.argsort(order)[selected])
    close(moved.W, plain.W, plain.value)
    close(moved.dual, plain.dual[:, order], plain.value**2)


@given(SEEDS, st.integers(0, 2**31))
def test_rotating_the_space_rotates_the_solution(seed, frame):
    X, z, selected = problem("plain", seed)
    d = X.shape[-1]
    Q = np.linalg.qr(np.random.default_rng(frame).normal(size=(d, d)))[0]
    plain, turned = attention_svm(X, z, selected), attention_svm(X @ Q.T, z @ Q.T, selected)
    close(turned.W, Q @ plain.W.numpy() @ Q.T, plain.value)
    close(turned.singular_values, plain.singular_values, plain.value)


@given(SEEDS, st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_scaling_queries_and_tokens_scales_the_solution(seed, a, c):
    X, z, selected = problem("plain", seed)
    plain, scaled = attention_svm(X, z, selected), attention_svm(c * X, a * z, selected)
    close(scaled.W * (a * c), plain.W, plain.value)
    close(scaled.dual * (a * c) ** 2, plain.dual, plain.value**2)
    assert scaled.rank == plain.rank


@given(SEEDS)
def test_a_copy_of_a_token_or_a_sequence_changes_nothing(seed):
    X, z, selected = problem("plain", seed)
    n, T, _ = X.shape
    other = (selected + 1) % T
    copied = np.concatenate([X, X[np.arange(n), other][:, None]], axis=1)
    plain = attention_svm(X, z, selected)
    close(attention_svm(copied, z, selected).W, plain.W, plain.value)
    twice = attention_svm(np.concatenate([X, X]), np.concatenate([z, z]), np.concatenate([selected, selected]))
    close(twice.W, plain.W, plain.value)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5), st.booleans())
def test_a_batch_is_its_problems_one_by_one(seeds, infeasible):
    rng = [np.random.default_rng(seed) for seed in seeds]
    X = np.stack([r.normal(size=(3, 4, 5)) for r in rng])
    z = np.stack([r.normal(size=(3, 5)) for r in rng])
    if infeasible:
        X[0, 0, 0] = X[0, 0, 1:].mean(0)
    batch = attention_svm(X, z, [0, 0, 0])
    assert batch.W.shape == (len(seeds), 5, 5) and batch.status.dtype == torch.int8
    for b in range(len(seeds)):
        if infeasible and b == 0:
            assert batch.status[b] == Status.INFEASIBLE and batch.W[b].isnan().all()
            assert batch.value[b] == torch.inf and batch.margin[b] == 0 and batch.rank[b] == -1
            assert abs(float(batch.certificate[b].sum()) - 1) < 1e-12
            continue
        alone = attention_svm(X[b], z[b], [0, 0, 0])
        close(batch.W[b], alone.W, alone.value)
        assert batch.status[b] == Status.OPTIMAL and batch.certificate[b].isnan().all()


def test_batch_axes_broadcast_and_keep_their_shape():
    X, z = np.random.default_rng(1).normal(size=(3, 4, 6)), np.random.default_rng(2).normal(size=(2, 1, 3, 6))
    selected = np.array([[0, 1, 2], [3, 2, 1], [1, 1, 1], [0, 0, 3]])
    solution = attention_svm(X, z, selected)
    assert solution.W.shape == (2, 4, 6, 6) and solution.dual.shape == (2, 4, 3, 4)
    alone = attention_svm(X, z[1, 0], selected[2])
    close(solution.W[1, 2], alone.W, alone.value)
