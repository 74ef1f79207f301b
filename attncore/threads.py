"""Small kernels run on one thread: waking a second one costs more than it brings."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import torch

PARALLEL_FROM = 2_000_000  # token entries from which torch's own threads pay

_lock = threading.Lock()
_inside, _outer = 0, 1


@contextmanager
def single_thread(tokens: torch.Tensor):
    """Run the block on one torch thread if `tokens` is a small CPU tensor; restore the number afterwards.

    The number of threads belongs to the process. Blocks may overlap in several Python threads: the first
    to enter remembers the number and the last to leave restores it.
    """
    global _inside, _outer
    if tokens.device.type != "cpu" or tokens.numel() >= PARALLEL_FROM:
        yield
        return
    with _lock:
        if not _inside:
            _outer = torch.get_num_threads()
            torch.set_num_threads(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                torch.set_num_threads(_outer)
