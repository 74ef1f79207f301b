"""One thread everywhere, and the fixture `row` that every benchmark fills in."""

import os

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import pytest  # noqa: E402
import torch  # noqa: E402
from rows import Row  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture
def row(benchmark) -> Row:
    """The record of this benchmark."""
    return Row(benchmark)
