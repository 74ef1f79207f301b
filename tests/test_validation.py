"""attncore.validation: what is refused, as what, and in which words; and the public functions that lean on it."""

import numpy as np
import pytest
import torch

from attncore.attention import SelectionAttention, attend, attention_logits
from attncore.data import token_selection
from attncore.heads import relu_head
from attncore.incontext import log_missing
from attncore.paths import regularization_path
from attncore.preconditioning import gaussian_task
from attncore.svm import attention_svm, local_optimality
from attncore.training import train
from attncore.validation import as_indices, as_tensor, broadcast_batch, placement
from attncore.weights import gaussian_start

PROBLEM = token_selection(2, 3, 4)
HALF = torch.float16


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: placement(HALF, None), ValueError, r"dtype must be torch.float32, .*, got torch.float16"),
    (lambda: placement("float32", None), TypeError, "dtype must be .*, got 'float32'"),
    (lambda: placement(None, "nowhere"), ValueError, "device must name .*, got 'nowhere'"),
    (lambda: placement(None, 1.5), TypeError, "device must be .*, got 1.5"),
    (lambda: broadcast_batch(X=(2, 3), W=(4,), z=()), ValueError, r"X, W and z must .* \(2, 3\) of X, \(4,\) of W"),
    (lambda: as_indices(None, "selected", 3), TypeError, "selected must hold integers, got None"),
    (lambda: as_indices("ab", "selected", 3), TypeError, "selected must hold integers, got 'ab'"),
    (lambda: as_indices([[0], [1, 2]], "selected", 3), ValueError, "selected must be rectangular"),
    (lambda: as_indices([True], "selected", 3), TypeError, "got dtype torch.bool"),
    (lambda: as_indices([0, 3], "selected", 3), ValueError, "selected must lie in 0..2, got values from 0 to 3"),
    (lambda: as_tensor([[1.0], [1.0, 2.0]], "X"), ValueError, "X must be rectangular"),
    (lambda: token_selection(2, 3, 4, dtype=torch.int64), ValueError, "dtype must be"),
    (lambda: token_selection(2, 3, 4, dtype=HALF), ValueError, "dtype must be"),
    (lambda: gaussian_start((), 4, 2, dtype=HALF), ValueError, "dtype must be"),
    (lambda: gaussian_start((-1,), 4, 2), ValueError, "batch must be at least 1, got -1"),
    (lambda: attention_logits(PROBLEM.X.expand(3, 2, 3, 4), torch.ones(2, 4, 4), PROBLEM.z), ValueError, "X, W and z"),
    (lambda: attend(PROBLEM.X, np.ones((5, 3))), ValueError, "X and attention must have leading axes that broadcast"),
    (lambda: SelectionAttention(PROBLEM.v, 3), TypeError, "parametrization must be a string"),
    (lambda: SelectionAttention(PROBLEM.v, "QK"), ValueError, "parametrization must be one of"),
    (lambda: SelectionAttention(PROBLEM.v, init=np.eye(3)), ValueError, r"init must have shape \(\.\.\., 4, 4\)"),
    (lambda: SelectionAttention(PROBLEM.v, "KQ", 3), ValueError, "init must be a pair"),
    (lambda: SelectionAttention(PROBLEM.v, "KQ", (np.ones((3, 2)), np.ones((4, 2)))), ValueError, "of one shape"),
    (lambda: train(PROBLEM, head=relu_head(np.eye(3)), steps=1), ValueError, "hidden must have shape .* the tokens"),
    (lambda: train(PROBLEM, init=np.eye(3), steps=1), ValueError, r"init must have shape \(4, 4\), got"),
    (lambda: regularization_path(PROBLEM, [1.0], directions=[np.eye(3)]), ValueError, r"directions\[0\] must have"),
    (lambda: log_missing(2.0, 5), ValueError, r"p_k must lie in \[0, 1\], got values from 2 to 2"),
    (lambda: log_missing(0.5, 0), ValueError, "N must be at least 1, got 0"),
    (lambda: gaussian_task(4, [1.0], dtype=torch.int64), ValueError, "dtype must be"),
    (lambda: attention_svm(PROBLEM.X[None][:0], PROBLEM.z, [0, 1]), ValueError, "must hold at least one problem"),
    (lambda: attention_svm(PROBLEM.X, PROBLEM.z, None), TypeError, "selected must hold integers, got None"),
    (lambda: local_optimality(PROBLEM.X, PROBLEM.z, PROBLEM.scores, [0, 1], solution=3), TypeError, "solution must be"),
])
def test_refused_by_name_with_value_and_expectation(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call()
    assert type(caught.value) is error


def test_what_is_taken():
    assert placement(None, None) == {"dtype": torch.float64, "device": torch.device("cpu")}
    assert placement(torch.float32, "cpu")["dtype"] == torch.float32
    assert broadcast_batch(a=(2, 1), b=(3,)) == (2, 3)
    assert as_indices([[0, 2]], "selected", 3).tolist() == [[0, 2]]
    assert gaussian_start(3, 4, 2)[0].shape == (3, 4, 2)
