"""Renew or verify the third-party browser assets in ``book/_static/vendor``.

``python tools/vendor_assets.py`` fetches the packages named in PACKAGES with npm, copies the files the book
needs and writes ``MANIFEST.json``: name, version, licence and the SHA-256 of every file.
``python tools/vendor_assets.py --check`` compares the folder with the manifest and touches nothing.
A build never needs npm: the files are committed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENDOR = ROOT / "book" / "_static" / "vendor"
MANIFEST = "MANIFEST.json"


@dataclass(frozen=True)
class Package:
    """An npm package: which of its files go where below the folder ``name``."""

    name: str
    npm: str
    version: str
    licence: str
    homepage: str
    files: tuple[tuple[str, str], ...]  # (pattern inside the package, folder it is put into)
    notice: str = ""


PACKAGES = (
    Package(
        name="mathjax",
        npm="mathjax",
        version="3.2.2",
        licence="Apache-2.0",
        homepage="https://www.mathjax.org",
        files=(
            ("LICENSE", ""),
            ("es5/tex-chtml.js", ""),
            ("es5/input/tex/extensions/*.js", "input/tex/extensions"),
            ("es5/output/chtml/fonts/tex.js", "output/chtml/fonts"),
            ("es5/output/chtml/fonts/woff-v2/*.woff", "output/chtml/fonts/woff-v2"),
        ),
    ),
    Package(
        name="ipywidgets",
        npm="@jupyter-widgets/html-manager",
        version="1.0.15",
        licence="BSD-3-Clause",
        homepage="https://github.com/jupyter-widgets/ipywidgets",
        files=(("dist/embed.js", ""), ("dist/embed.js.LICENSE.txt", ""), ("dist/*.woff2", "")),
        notice="The woff2 files are Font Awesome Free 5 fonts (SIL Open Font License 1.1).",
    ),
)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def inventory(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below ``folder`` except the manifest, by POSIX path."""
    files = (f for f in sorted(folder.rglob("*")) if f.is_file() and f.name != MANIFEST)
    return {f.relative_to(folder).as_posix(): sha256(f) for f in files}


def problems(folder: Path = VENDOR) -> list[str]:
    """What differs between the vendored files and their manifest; empty when nothing does."""
    manifest = json.loads((folder / MANIFEST).read_text("utf8"))
    listed = {path: digest for p in manifest["packages"] for path, digest in p["files"].items()}
    found = inventory(folder)
    lines = [f"{path}: in the manifest, not in the folder" for path in sorted(listed.keys() - found.keys())]
    lines += [f"{path}: in the folder, not in the manifest" for path in sorted(found.keys() - listed.keys())]
    lines += [
        f"{path}: checksum {found[path][:12]} is not the manifest's {listed[path][:12]}"
        for path in sorted(listed.keys() & found.keys())
        if listed[path] != found[path]
    ]
    for package in manifest["packages"]:
        if not package.get("licence"):
            lines.append(f"{package.get('name')}: no licence named")
        if not any("LICENSE" in path for path in package["files"]):
            lines.append(f"{package.get('name')}: no licence text among its files")
    return lines


def fetch(package: Package, scratch: Path) -> Path:
    """Unpack ``package`` below ``scratch`` and return the folder with its files."""
    subprocess.run(
        ["npm", "pack", "--silent", f"{package.npm}@{package.version}"],
        cwd=scratch,
        check=True,
        stdout=sys.stderr,
    )
    (archive,) = scratch.glob("*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(scratch, filter="data")
    return scratch / "package"


def copy(package: Package, source: Path, target: Path) -> None:
    for pattern, folder in package.files:
        matches = sorted(source.glob(pattern))
        if not matches:
            raise FileNotFoundError(f"{package.npm}@{package.version} has no file {pattern!r}")
        (target / folder).mkdir(parents=True, exist_ok=True)
        for match in matches:
            shutil.copyfile(match, target / folder / match.name)
    if package.name == "ipywidgets":  # the npm package carries only the licences of what it bundles
        text = next(f for f in distribution("ipywidgets").files or () if f.name == "LICENSE").read_text()
        (target / "LICENSE").write_text(text, "utf8")


def renew(folder: Path = VENDOR) -> None:
    """Fetch every package anew and write the manifest."""
    for package in PACKAGES:
        shutil.rmtree(folder / package.name, ignore_errors=True)
        with tempfile.TemporaryDirectory() as scratch:
            copy(package, fetch(package, Path(scratch)), folder / package.name)
    found = inventory(folder)
    entries = []
    for package in PACKAGES:
        files = {path: digest for path, digest in found.items() if path.startswith(f"{package.name}/")}
        entry = {"name": package.npm, "version": package.version, "licence": package.licence}
        entry |= {"homepage": package.homepage, "notice": package.notice, "files": files}
        entries.append({key: value for key, value in entry.items() if value})
    (folder / MANIFEST).write_text(json.dumps({"packages": entries}, indent=2) + "\n", "utf8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the manifest, change nothing")
    if not parser.parse_args(argv).check:
        renew()
    found = problems()
    print("\n".join(found) or f"{len(inventory(VENDOR))} vendored files agree with {MANIFEST}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
