"""How the scripts behind `book/data/*.json` round numbers, say where a file comes from, and write it."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "book" / "data"


def significant(values, digits: int):
    """Numbers, in lists as deep as `values`, with that many significant digits; None for nan."""
    values = np.asarray(values)
    if values.ndim:
        return [significant(v, digits) for v in values]
    return None if np.isnan(values) else float(f"{float(values):.{digits}g}")


def write(target: Path, script: str, seed: int, data: dict, packages=("torch",)) -> None:
    """Write `data` to the file `target`, its provenance in front (see `attncore.course.data_files`).

    `script` is the path of the file in `tools/`; `packages` are named with their versions beside the machine.
    """
    versions = (f"{package} {version(package)}" for package in packages)
    machine = [f"{platform.machine()}, one core, {platform.system()}", *versions]
    provenance = {
        "command": f"python tools/{Path(script).name}", "seed": seed, "version": version("attncore"),
        "machine": ", ".join(machine),
    }  # fmt: skip
    text = json.dumps({"provenance": provenance, **data}, separators=(",", ":"))
    target.write_text(text + "\n", "utf8")
