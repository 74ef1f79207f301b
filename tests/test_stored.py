import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import stored
import torch

from attncore.course.data_files import load


def test_numbers_keep_their_leading_digits_at_any_depth():
    values = torch.tensor([[1.23456789, -2e-9], [math.nan, 123456.0]], dtype=torch.float64)
    assert stored.significant(values, 3) == [[1.23, -2e-9], [None, 123000.0]]
    assert stored.significant(np.float64(0.1 + 0.2), 6) == 0.3


def test_a_file_says_where_it_comes_from(tmp_path):
    stored.write(tmp_path / "made.json", "/some/folder/sweep.py", 7, {"rows": [1]}, packages=("numpy",))
    made = load("made.json", tmp_path)  # refuses a file without whole provenance
    assert list(made) == ["provenance", "rows"] and made["rows"] == [1]
    origin = made["provenance"]
    assert (origin["command"], origin["seed"]) == ("python tools/sweep.py", 7)
    assert f"numpy {np.__version__}" in origin["machine"]


@pytest.mark.parametrize("path", sorted(stored.FOLDER.glob("*.json")), ids=lambda path: path.name)
def test_the_script_that_a_file_names_makes_this_file(path):
    script = Path(json.loads(path.read_text("utf8"))["provenance"]["command"].split()[-1])
    assert importlib.import_module(script.stem).TARGET == path
