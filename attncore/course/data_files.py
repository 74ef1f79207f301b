"""Data files of the book: the one way to read them, and what each must say about its origin.

A page's freshness follows the files it reads, so their names must stand in the code as literals:
``data_files.load("name.json")``. A file without provenance is refused.
"""

from __future__ import annotations

import json
from pathlib import Path

from attncore.validation import short

REPOSITORY = Path(__file__).resolve().parents[2] / "book" / "data"
INSTALLED = Path(__file__).resolve().parent / "data"  # a copy that setup.py makes for an installed package
FOLDER = INSTALLED if INSTALLED.is_dir() else REPOSITORY
PROVENANCE = {
    "command": str,  # what to run, from the repository's root, to make the file again
    "seed": int,
    "version": str,  # of attncore
    "machine": str,  # processor, cores, accelerator; no names of hosts
}


def load(name: str, folder: Path = FOLDER) -> dict:
    """Read the data file ``name`` of ``book/data``.

    Parameters
    ----------
    name : str
        Name of a JSON file. In pages and in modules they import it must be a literal.
    folder : Path
        Where data files live.

    Returns
    -------
    dict
        The object in the file; its entry ``provenance`` says how it was made (see `provenance_faults`).

    Raises
    ------
    TypeError
        If `name` is not a string.
    ValueError
        If there is no such file, if it is not a JSON object, or if its provenance is incomplete.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {short(name)}")
    known = sorted(path.name for path in folder.glob("*.json"))
    if name not in known:
        raise ValueError(f"name must be one of {known}, got {name!r}")
    try:
        data = json.loads((folder / name).read_text("utf8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} must hold JSON, got text that is not: {error}") from None
    faults = provenance_faults(data)
    if faults:
        raise ValueError(f"{name} must say how it was made: {'; '.join(faults)}")
    return data


def provenance_faults(data: object) -> list[str]:
    """Say what is missing or wrong in the entry ``provenance`` of a data file; an empty list if nothing is.

    The entry holds `command` (run from the repository's root, it makes the file again), `seed`, `version`
    (of attncore) and `machine` (in words, no host names).
    """
    entry = data.get("provenance") if isinstance(data, dict) else None
    if not isinstance(entry, dict):
        return ["no object 'provenance'"]
    faults = []
    for key, kind in PROVENANCE.items():
        value = entry.get(key)
        if not isinstance(value, kind) or isinstance(value, bool) or value == "":
            faults.append(f"provenance.{key} must be a non-empty {kind.__name__}, got {short(value)}")
    return faults
