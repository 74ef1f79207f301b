"""What every test needs: one BLAS thread, a headless canvas, no skips under CI, the paths of the book."""

import os
import sys

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

torch.set_num_threads(1)
settings.register_profile(
    "course", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("course")

ROOT = Path(__file__).resolve().parent.parent
for _folder in ("book/_ext", "tools"):
    sys.path.insert(0, str(ROOT / _folder))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def book_folder() -> Path:
    """The sources of the book."""
    return ROOT / "book"


@pytest.fixture(scope="session")
def site() -> Path:
    """The built site (`BOOK_SITE` names another); where there is none a test is skipped, and under CI fails."""
    folder = Path(os.environ.get("BOOK_SITE", ROOT / "_build" / "html")).resolve()
    if not (folder / "index.html").exists():
        pytest.skip(f"there is no built site in {folder}: run `make book` first")
    return folder


@pytest.fixture(scope="session")
def oracle_trajectories(root) -> dict[str, np.ndarray]:
    """Reference iterates of the published training algorithm on two problems, by key."""
    with np.load(root / "tests" / "oracles" / "trajectories.npz") as stored:
        return dict(stored)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Under CI a skip is a failure: a missing tool must not pass for a passed test. Only GPUs may be missing."""
    report = yield
    allowed = item.get_closest_marker("gpu") or hasattr(report, "wasxfail")
    if report.skipped and os.environ.get("CI") and not allowed:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"nothing but a GPU test may be skipped under CI: {reason}"
    return report
