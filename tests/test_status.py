"""The status table: each entry is that of the run it names."""

from __future__ import annotations

import books
import pytest
import status
import usage

RECORD = {
    "executed": "2030-01-02T03:04:05+00:00",
    "seconds": 12.34,
    "peak_bytes": 345_600_000,
    "versions": {"python": "3.11.1", "numpy": "2.0.0", "torch": "2.5.0"},
    "machine": {"system": "Linux", "processor": "P", "cores": 2, "memory_gib": 8},
}


def state(**changes):
    return {"page_digest": "abc", "run_digest": "def", "run": RECORD | changes}


def test_row_tells_of_the_run():
    assert status.row_for(state()) == ("ran", "2030-01-02 03:04", "12.3 s", "346 MB", "abc")
    assert status.row_for({"page_digest": "abc", "run_digest": "def", "run": None})[:2] == ("failed", "never")


@pytest.mark.parametrize(
    ("seconds", "peak_bytes", "word"),
    [
        (45.0, 1.0e9, "ran"),
        (45.1, 1.0e9, "over budget: 45 s of 45 s"),
        (1.0, 1.01e9, "over budget: 1.01 GB of 1 GB"),
        (90.0, 1.4e9, "over budget: 90 s of 45 s, 1.40 GB of 1 GB"),
    ],
)
def test_pages_over_budget_are_named(seconds, peak_bytes, word):
    assert status.word_for(state(seconds=seconds, peak_bytes=peak_bytes)) == word


@pytest.mark.parametrize(
    ("seconds", "peak_bytes", "faults"), [(300, 1.5e9, 0), (301, 1, 1), (1, 1.6e9, 1), (400, 2e9, 2)]
)
def test_the_bound_is_wider_than_the_budget(seconds, peak_bytes, faults):
    record = {"seconds": seconds, "peak_bytes": peak_bytes}
    assert len(usage.excess(record, usage.BOUND_SECONDS, usage.BOUND_BYTES)) == faults
    assert usage.BOUND_SECONDS > usage.BUDGET_SECONDS and usage.BOUND_BYTES > usage.BUDGET_BYTES


def test_the_page_states_the_budget_that_is_applied():
    text = (books.ROOT / "book/reference/status.md").read_text("utf8")
    assert f"{usage.BUDGET_SECONDS:.0f} s and {usage.BUDGET_BYTES / 1e9:.0f} GB" in text
    assert f"{usage.BOUND_SECONDS:.0f} s or {usage.BOUND_BYTES / 1e9:.1f} GB" in text


def test_the_machine_is_told_without_its_name():
    import os

    import kernels

    told = kernels.machine()
    assert set(told) == {"system", "processor", "cores", "memory_gib"}
    assert os.uname().nodename not in str(told)
    assert told["cores"] >= 1 and told["memory_gib"] >= 1
