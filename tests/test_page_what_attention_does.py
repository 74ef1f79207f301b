"""What the page `book/icl/what-attention-does` promises and its build cannot show.

The property check of the exercise meets wrong answers; concentration, the error on foreign prompts and the direction
meet settings other than the page's own.
"""

import math

import numpy as np
import pages
import pytest
import torch

from attncore import incontext
from attncore.course.check import NotDone, PropertyViolated
from attncore.svm import attention_svm


@pytest.fixture(scope="module")
def page():
    return pages.names("icl/what-attention-does", ["import ", "def share_within", "def by_limit", "def over_prompts"])


def answer(page, function):
    return [function(*case) for case in page["asked"]]


def test_the_stub_is_no_answer(page):
    with pytest.raises(NotDone):
        answer(page, page["share_within"])


def binomial(K, N):
    return np.array([math.comb(N, c) / K**N * (K - 1) ** (N - c) for c in range(N + 1)])


def by_markov(K, N, factor):
    return max(0.0, 1 - 2 * (K - 1) / K / factor)


def missing_prompts_counted_good(K, N, factor):
    c = np.arange(1, N + 1)
    h = (N / c - 1) ** 2
    pi = binomial(K, N)
    H = (pi[1:] * h).sum() * K / (K - 1) / 2
    return float(pi[1:][h <= factor * H].sum() + pi[0])


def without_the_square(K, N, factor):
    c = np.arange(1, N + 1)
    h = N / c - 1
    pi = binomial(K, N)[1:]
    return float(pi[h <= factor * (pi * h).sum() / 2].sum())


@pytest.mark.parametrize("wrong", [by_markov, missing_prompts_counted_good, without_the_square,
                                   lambda K, N, factor: float("nan"), lambda K, N, factor: 1.0])
def test_wrong_shares_violate_the_property(page, wrong):
    with pytest.raises(PropertyViolated):
        page["as_sampled"](answer(page, wrong))


def test_too_few_shares_violate_the_property(page):
    with pytest.raises(PropertyViolated):
        page["as_sampled"](answer(page, page["by_limit"])[:-1])


def test_right_shares_pass_however_they_are_found(page, capsys):
    page["as_sampled"](answer(page, page["by_limit"]))

    def from_the_package(K, N, factor):
        # a gap of 9 leaves an excess far above rounding, and the prompts close to their limit
        _, pi, b = incontext.prompt_law(9.0, 1 / K, N)
        q = np.full(K, -9.0 / K)
        q[0] += 9.0
        floor = 0.5 * (1 - 1 / K) ** N * (1 + 1 / N + (1 - 1 / N) / (K - 1))
        x = float(incontext.column_moments(q, np.full(K, 1 / K), 0, N).loss) - floor
        return float(pi[b**2 <= factor * x].sum())

    page["as_sampled"](answer(page, from_the_package))
    assert capsys.readouterr().out.count("Holds") == 2


@pytest.mark.parametrize("K, N, p", [(2, 2, 0.5), (7, 9, 0.05), (20, 50, 0.4), (3, 300, 0.01)])
@pytest.mark.parametrize("u", [0.0, 2.0, 8.0])
def test_wasted_attention_is_bounded_by_the_excess(K, N, p, u):
    other = np.full(K, (1 - p) / (K - 1))
    other[0] = p
    q = np.full(K, -u / K)
    q[0] += u
    loss = float(incontext.column_moments(q, other, 0, N).loss)
    x = loss - 0.5 * (1 - p) ** N * (1 + 1 / N + (1 - 1 / N) / (K - 1))
    _, pi, b = incontext.prompt_law(u, p, N)
    mean = float((pi * b**2)[1:].sum())
    assert mean <= 2 * (K - 1) / K * x * (1 + 1e-9) + 1e-14
    assert mean >= 0.5 * x


def test_quantiles_are_quantiles(page):
    mean, *quantiles, worst = page["over_prompts"](3.0, 0.01, 0.1, 40)
    c = np.random.default_rng(0).binomial(40, 0.1, 200_000)
    b = (40 - c) * math.exp(-3) / (c + (40 - c) * math.exp(-3))
    seen = np.quantile(b**2 / 0.01, [0.5, 0.9], method="inverted_cdf")
    assert quantiles[:2] == pytest.approx(seen)
    assert mean == pytest.approx((b**2 * (c > 0)).mean() / 0.01, rel=0.02)
    assert worst == pytest.approx((39 * math.exp(-3) / (1 + 39 * math.exp(-3))) ** 2 / 0.01)


def test_the_error_on_a_foreign_prompt_with_noise_and_any_covariance():
    rng = np.random.default_rng(3)
    K, u, sigma = 4, 1.5, 0.7
    q = np.full(K, -u / K)
    q[2] += u
    kinds = np.array([2, 0, 0, 1, 2, 0, 3])                 # one prompt, no law at all
    c = np.bincount(kinds, minlength=K)
    a = c * np.exp(q) / (c * np.exp(q)).sum()
    root = rng.normal(size=(K, K))
    w = rng.normal(size=(400_000, K)) @ root.T
    labels = w[:, kinds] + sigma * rng.normal(size=(len(w), len(kinds)))
    weight = np.exp(q)[kinds] / np.exp(q)[kinds].sum()
    half = 0.5 * (labels @ weight - w[:, 2]) ** 2
    e = a - np.eye(K)[2]
    claimed = 0.5 * (e @ root @ root.T @ e + sigma**2 * (a**2 / c).sum())
    assert half.mean() == pytest.approx(claimed, abs=5 * half.std() / math.sqrt(len(half)))
    assert e @ e <= 2 * (1 - a[2]) ** 2


@pytest.mark.parametrize("K, d", [(2, 2), (4, 7), (9, 9)])
def test_the_machine_in_any_orthonormal_features(K, d):
    V = torch.linalg.qr(torch.tensor(np.random.default_rng(K).normal(size=(d, K))))[0]
    W = attention_svm(V.T.expand(K, K, d), V.T, torch.arange(K)).W
    ones = V.sum(1)
    torch.testing.assert_close(W, V @ V.T - torch.outer(ones, ones) / K, atol=1e-8, rtol=0)


def test_offset_and_direction_for_three_frequencies():
    p = np.array([0.6, 0.3, 0.1])
    run = incontext.flow("mean_field", [1e10, 1e40], p=p)
    rest = run.matrix().numpy() - 0.5 * math.log(1e40) * (np.eye(3) - 1 / 3)
    for k in range(3):
        others = [n for n in range(3) if n != k]
        g = math.sqrt(p[others].prod())
        u = 0.5 * math.log(2 * 9 * g**2 / p[k])
        assert rest[k, k] == pytest.approx(2 / 3 * u, abs=1e-3)
        assert rest[others, k] == pytest.approx(-u / 3 + np.log(g / p[others]), abs=1e-3)
