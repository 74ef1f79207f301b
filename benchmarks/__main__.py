"""Run the benchmarks, print them as a table and keep them in `benchmarks/results.json`.

``python -m benchmarks [pytest arguments]``; where arguments select some rows, the others stay as they were.
The file names the processor, the threads and the versions, and nothing that identifies the machine.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results.json"
PACKAGES = ("numpy", "scipy", "torch", "daqp", "cvxpy", "numba")


def processor() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def environment() -> dict:
    """What the numbers depend on."""
    return {
        "date": datetime.date.today().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": 1,
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def row(record: dict) -> dict:
    """One benchmark: where it is, what a call took, and what was compared."""
    return {"seconds": record["stats"]["min"], "compared": record["extra_info"]}


def show(value) -> str:
    """A number in three digits."""
    return str(value) if isinstance(value, (bool, str)) else f"{value:.3g}"


def table(rows: dict) -> str:
    """The rows as plain text, one comparison a line."""
    lines = []
    for name, content in sorted(rows.items()):
        lines.append(f"{name}  ({show(content['seconds'])} s a call)")
        lines += [f"    {key:42} {show(value)}" for key, value in content["compared"].items()]
    return "\n".join(lines)


def main() -> int:
    """Run, merge, write, print."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "raw.json"
        command = [sys.executable, "-m", "pytest", *(sys.argv[1:] or [str(FOLDER)]), "--benchmark-only",
                   f"--benchmark-json={raw}", "-q", "-p", "no:cacheprovider", "--benchmark-columns=min"]
        status = subprocess.run(command, env=os.environ | threads, cwd=FOLDER.parent, check=False).returncode
        records = json.loads(raw.read_text())["benchmarks"] if raw.exists() and raw.stat().st_size else []
    rows = {record["fullname"].removeprefix("benchmarks/"): row(record) for record in records}
    if rows:
        kept = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({"environment": environment(), "rows": kept | rows}, indent=1) + "\n")
    print(table(rows))
    return status


if __name__ == "__main__":
    sys.exit(main())
