"""Run the benchmarks, print them as a table and keep them in `benchmarks/results.json`.

``python -m benchmarks [pytest arguments]``; where arguments select some rows, the others stay as they were,
each with the run it comes from. The file names the processor, the threads, the versions and the commit, and
nothing that identifies the machine. A benchmark that fails leaves its old row, and the exit status says so.
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
PACKAGES = ("numpy", "scipy", "torch", "daqp", "cvxpy", "clarabel", "osqp", "piqp", "proxsuite", "numba")
MEASURED = ("attncore", ":!attncore/course")  # what a run measures
FIELDS = ("title", "work", "ours", "opponents", "floors", "measures", "bars")


def processor() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit that was measured, with a + where the package differs from it; None outside a clone."""
    found = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=FOLDER, capture_output=True, text=True)
    if found.returncode:
        return None
    clean = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *MEASURED], cwd=FOLDER.parent)
    return found.stdout.strip() + "+" * bool(clean.returncode)


def versions() -> dict[str, str]:
    """Versions of the packages that take part; a library that is not installed is no opponent."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def environment() -> dict:
    """What the numbers of a run depend on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "commit": commit(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": 1,
        "load": round(os.getloadavg()[0], 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": versions(),
    }


def merge(old: dict, rows: dict, run: dict) -> dict:
    """Old results with new rows in place of those of the same name, and only the runs that rows name."""
    runs = old.get("runs", {}) | {run["date"]: run}
    merged = old.get("rows", {}) | {name: {**content, "run": run["date"]} for name, content in rows.items()}
    used = {content["run"] for content in merged.values()}
    by_file = sorted(merged.items(), key=lambda item: item[0].partition("::")[0])
    return {"runs": {key: runs[key] for key in sorted(used)}, "rows": dict(by_file)}


def show(value) -> str:
    """A number in three digits."""
    return str(value) if isinstance(value, (bool, str)) else f"{value:.3g}"


def table(rows: dict) -> str:
    """The rows as plain text."""
    lines = []
    for name, content in rows.items():
        lines.append(f"{name}\n  {content['title']}: {show(content['ours'])} s ({content['work']})")
        for group in ("opponents", "floors"):
            for other, side in content[group].items():
                more = ", ".join(f"{key} {show(value)}" for key, value in side.items())
                lines.append(f"    {other:44} {more}; {show(side['seconds'] / content['ours'])} times ours")
        lines += [f"    {key:44} {show(value)}" for key, value in content["measures"].items()]
        for bar in content["bars"]:
            word = "met" if bar["met"] else "NOT MET"
            asked = f"{'aim' if bar['aim'] else 'bar'}: {bar['sign']} {show(bar['asked'])}"
            lines.append(f"    {bar['what']:44} {show(bar['measured'])} ({asked}) {word}")
    return "\n".join(lines)


def main() -> int:
    """Run, merge, write, print."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    run = environment()
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "raw.json"
        command = [sys.executable, "-m", "pytest", *(sys.argv[1:] or [str(FOLDER)]), "--benchmark-only",
                   f"--benchmark-json={raw}", "-q", "-p", "no:cacheprovider", "--benchmark-columns=min"]
        status = subprocess.run(command, env=os.environ | threads, cwd=FOLDER.parent, check=False).returncode
        records = json.loads(raw.read_text())["benchmarks"] if raw.exists() and raw.stat().st_size else []
    rows = {
        record["fullname"].removeprefix("benchmarks/"): {field: record["extra_info"][field] for field in FIELDS}
        for record in records
    }
    if rows:
        old = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(merge(old, rows, run), indent=1) + "\n")
    print(table(rows))
    return status


if __name__ == "__main__":
    sys.exit(main())
