"""Stored data: read by name, refused without provenance."""

from __future__ import annotations

import json

import pytest

from attncore.course import data_files

GOOD = {"command": "python -m benchmarks.some", "seed": 0, "version": "0.1.0", "machine": "CPU, 2 cores"}


def store(folder, name, content):
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), "utf8")


def test_load_returns_the_file(tmp_path):
    store(tmp_path, "a.json", {"provenance": GOOD, "x": [1, 2]})
    assert data_files.load("a.json", tmp_path)["x"] == [1, 2]


def test_load_refuses_what_is_not_there_and_what_is_no_name(tmp_path):
    store(tmp_path, "a.json", {"provenance": GOOD})
    with pytest.raises(ValueError, match=r"name must be one of \['a.json'\], got '../secret.json'"):
        data_files.load("../secret.json", tmp_path)
    with pytest.raises(TypeError, match="name must be a string, got 3"):
        data_files.load(3, tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", {"x": 1}], ids=["no JSON", "no object", "no provenance"])
def test_load_refuses_files_that_do_not_say_how_they_were_made(tmp_path, content):
    store(tmp_path, "a.json", content)
    with pytest.raises(ValueError, match="a.json must"):
        data_files.load("a.json", tmp_path)


@pytest.mark.parametrize("key", GOOD)
@pytest.mark.parametrize("value", [None, "", True, 1.5])
def test_each_entry_of_the_provenance_is_needed(key, value):
    assert data_files.provenance_faults({"provenance": GOOD}) == []
    (fault,) = data_files.provenance_faults({"provenance": GOOD | {key: value}})
    assert key in fault


def test_every_stored_file_says_how_it_was_made():
    faults = {}
    for path in sorted(data_files.FOLDER.glob("*")):
        if path.suffix == ".json":
            data_files.load(path.name)
        elif path.name != "README.md":
            faults[path.name] = "only JSON files with provenance, and the README, belong here"
    assert not faults
