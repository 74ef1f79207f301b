"""Under CI a skipped test is a failed test, unless it needs a GPU."""

import os
import subprocess
import sys

import pytest

TESTS = """
import pytest

def test_missing_tool():
    pytest.skip("no such tool")

@pytest.mark.gpu
def test_gpu():
    pytest.skip("no GPU")

@pytest.mark.xfail
def test_known():
    assert False
"""


@pytest.mark.parametrize("ci, failed, skipped", [("true", 1, 1), ("", 0, 2)])
def test_skips_fail_under_ci_but_for_gpus(tmp_path, root, ci, failed, skipped):
    (tmp_path / "conftest.py").write_text((root / "tests" / "conftest.py").read_text("utf8"), "utf8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu: needs a GPU\n", "utf8")
    (tmp_path / "test_it.py").write_text(TESTS, "utf8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    result = subprocess.run(command, env={**os.environ, "CI": ci}, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == bool(failed)
    counts = result.stdout.splitlines()[-1]
    assert f"{skipped} skipped" in counts and "1 xfailed" in counts
    assert ("1 failed" in counts) == bool(failed)
    assert ("no such tool" in result.stdout) == bool(failed)
