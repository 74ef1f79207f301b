"""Angles between matrices."""

import numpy as np
import pytest
import torch

from attncore.geometry import correlation


def test_correlation_is_the_cosine_of_the_flattened_matrices():
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(4, 3, 5)), rng.normal(size=(4, 3, 5))
    flat_a, flat_b = A.reshape(4, -1), B.reshape(4, -1)
    expected = (flat_a * flat_b).sum(1) / np.linalg.norm(flat_a, axis=1) / np.linalg.norm(flat_b, axis=1)
    np.testing.assert_allclose(correlation(A, B), expected, rtol=1e-12)


def test_signs_bounds_and_scale():
    A = np.random.default_rng(1).normal(size=(3, 3))
    assert correlation(A, A) == pytest.approx(1) and correlation(A, -2 * A) == pytest.approx(-1)
    assert correlation(A * 1e200, A * 1e-200) == pytest.approx(1)
    assert correlation([[1.0, 0.0]], [[0.0, 1.0]]) == 0
    assert float(correlation(A, A)) <= 1


def test_leading_axes_broadcast():
    A, B = torch.ones(5, 1, 2, 2), torch.ones(3, 2, 2)
    assert correlation(A, B).shape == (5, 3) and correlation(A, B).dtype == torch.float32


def test_zero_has_no_direction():
    assert correlation(np.zeros((2, 2)), np.eye(2)).isnan()


@pytest.mark.parametrize("shapes", [((2, 2), (2, 3)), ((2,), (2,)), ((2, 2, 2), (3, 2, 2))])
def test_shapes_that_do_not_match_are_refused(shapes):
    with pytest.raises(ValueError, match="A and B must have"):
        correlation(np.ones(shapes[0]), np.ones(shapes[1]))
