"""Run a piece of code in a process of its own and read off its processor time and its peak memory."""

import os
import subprocess
import sys

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

PRELUDE = """
import os, resource, sys, time, torch
torch.set_num_threads(1)
def peak():
    # Linux hands the parent's ru_maxrss down to a child; the high-water mark of its own memory it keeps apart.
    if os.path.exists("/proc/self/status"):
        marks = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
        if marks:
            return int(marks[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
"""


def run_fresh(code: str, *arguments) -> list[float]:
    """The numbers that `code` prints, run on one thread after a prelude with ``peak()`` (MiB) and torch."""
    command = [sys.executable, "-c", PRELUDE + code, *map(str, arguments)]
    environment = os.environ | dict.fromkeys(THREADS, "1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]
