"""Write requirements.txt: every package of every extra, for every platform, pinned and hashed.

Run it through ``make lock``. Torch is left out: it is pinned in requirements-torch.txt and installed first, without a
hash, because one version has several builds (CPU, CUDA) and a hash would allow only one of them. What requirements.txt
already pins stays as it is, unless pyproject.toml no longer allows it; ``--upgrade`` renews everything.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = """\
# Every package that the book, its tests and attncore need, for every platform, pinned and hashed.
# Written by `make lock` from pyproject.toml; torch is in requirements-torch.txt and is installed first.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
    target = ROOT / "requirements.txt"
    command = [
        sys.executable, "-m", "uv", "pip", "compile", "--universal", "--python-version", "3.11", "--generate-hashes",
        "--no-emit-package", "torch", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links",
        "--quiet", "--output-file", str(target), "--constraint", str(ROOT / "requirements-torch.txt"),
    ]  # fmt: skip
    for extra in sorted(project["optional-dependencies"]):
        command += ["--extra", extra]
    if options.upgrade:
        command.append("--upgrade")
    code = subprocess.run([*command, str(ROOT / "pyproject.toml")], cwd=ROOT, check=False).returncode
    if code == 0:
        pins = target.read_text("utf8")
        target.write_text(HEADER + pins.removeprefix(HEADER), "utf8")
        print(f"wrote {target.relative_to(ROOT)}: {pins.count('==')} pins")
    return code


if __name__ == "__main__":
    sys.exit(main())
