"""What benchmarks share: opponents timed in turns with ours, one thread, ratios kept with the record."""

import os

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import time  # noqa: E402

import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


def _timed(run) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return time.process_time() - processor, time.perf_counter() - wall


@pytest.fixture
def in_turns(benchmark):
    """Time ours and its opponents in turns, and record the ratios.

    ``in_turns(ours, {name: (run, share)}, rounds=, bar=, floor=)``: each opponent does the fraction `share`
    of the work of `ours`. Times are the least processor seconds over the rounds, so that a busy machine
    slows all sides alike; `bar` is the ratio asked for against the first opponent, and `floor` names the
    opponent that shows how far from the limit we are.
    """

    def compare(ours, opponents, rounds=5, bar=None, floor=None):
        ours()
        for run, _ in opponents.values():
            run()
        sides = {"ours": (ours, 1.0), **opponents}
        times = {name: [] for name in sides}
        for _ in range(rounds):
            for name, (run, share) in sides.items():
                times[name].append([seconds / share for seconds in _timed(run)])
        best = {name: min(processor for processor, _ in seconds) for name, seconds in times.items()}
        benchmark.pedantic(ours, rounds=1)
        record = {f"{name} [s]": seconds for name, seconds in best.items()}
        for name in opponents:
            if name == floor:
                record[f"ours / {name}"] = best["ours"] / best[name]
            else:
                record[f"times {name}"] = best[name] / best["ours"]
        if bar is not None:
            record |= {"bar": bar, "met": best[next(iter(opponents))] / best["ours"] >= bar}
        benchmark.extra_info.update(record)
        return best

    return compare
