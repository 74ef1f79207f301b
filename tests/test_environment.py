"""The three descriptions of the environment (pyproject.toml, the locks, environment.yml) say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FILES = ("pyproject.toml", "requirements-torch.txt", "requirements.txt", "environment.yml")
# conda-forge's name -> PyPI's name, where they differ.
CONDA_NAMES = {"pytorch-cpu": "torch", "matplotlib-base": "matplotlib", "cvxpy-base": "cvxpy"}
# What building the site needs and running a chapter does not: absent from environment.yml on purpose.
BUILD_ONLY = {"jupyter-book", "sphinx-proof", "sphinx-exercise", "psutil"}
LOCKED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)(?:\s*;[^\\]*)?\s*\\$", re.M)
CONDA = re.compile(r"^([\w.-]+)\s*((?:[<>=!~]=?[\w.*]+,?)*)$")


def read() -> dict[str, str]:
    return {name: (ROOT / name).read_text("utf8") for name in FILES}


def disagreements(texts: dict[str, str]) -> list[str]:
    """Say everything in which the four files disagree; an empty list means that they agree."""
    found: list[str] = []
    pyproject = tomllib.loads(texts["pyproject.toml"])
    project, extras = pyproject["project"], pyproject["project"]["optional-dependencies"]
    ranges: dict[str, SpecifierSet] = {}
    builds = pyproject["build-system"]["requires"]
    for line in [*builds, *project["dependencies"], *(r for e in extras.values() for r in e)]:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name == project["name"]:
            if str(requirement.specifier) or not requirement.extras <= set(extras):
                found.append(f"pyproject.toml: {line} is not one of the package's own extras")
            continue
        if not requirement.specifier:
            found.append(f"pyproject.toml: {name} has no range")
        if ranges.setdefault(name, requirement.specifier) != requirement.specifier:
            found.append(f"pyproject.toml: {name} has two ranges")

    pins: dict[str, list[str]] = {}
    for name, version in LOCKED.findall(texts["requirements.txt"]):
        pins.setdefault(canonicalize_name(name), []).append(version)
    torch = Requirement(texts["requirements-torch.txt"].strip())
    if torch.name != "torch" or [s.operator for s in torch.specifier] != ["=="]:
        found.append("requirements-torch.txt: expected exactly one pin of torch")
    else:
        pins["torch"] = [next(iter(torch.specifier)).version]
    for name, allowed in ranges.items():
        if name not in pins:
            found.append(f"requirements.txt: {name} is not pinned")
        found += [f"requirements.txt: {name} {v} is outside {allowed}" for v in pins.get(name, []) if v not in allowed]

    conda = yaml.safe_load(texts["environment.yml"])["dependencies"]
    listed: dict[str, SpecifierSet] = {}
    for entry in [e for e in conda if isinstance(e, str)]:
        match = CONDA.match(entry)
        if match is None:
            found.append(f"environment.yml: cannot read {entry!r}")
            continue
        name = CONDA_NAMES.get(match[1], canonicalize_name(match[1]))
        if name == "python":
            # One exact version: repo2docker reads no range of Python and would start from an older one.
            if not re.fullmatch(r"=3\.\d+", match[2]) or match[2][1:] not in SpecifierSet(project["requires-python"]):
                found.append(f"environment.yml: python {match[2]} is not one version that pyproject.toml allows")
        elif name != "pip":
            listed[name] = SpecifierSet(match[2])
    [through_pip] = [e["pip"] for e in conda if isinstance(e, dict)]
    if "-e ." not in through_pip:
        found.append("environment.yml: the package itself (-e .) is missing")
    for entry in [e for e in through_pip if not e.startswith("-")]:
        requirement = Requirement(entry)
        listed[canonicalize_name(requirement.name)] = requirement.specifier
    runtime = [*project["dependencies"], *extras["pages"], *extras["book"]]
    wanted = {canonicalize_name(Requirement(r).name) for r in runtime} - BUILD_ONLY - {project["name"]}
    found += [f"environment.yml: {name} is missing" for name in sorted(wanted - set(listed))]
    found += [f"environment.yml: {name} is not in pyproject.toml" for name in sorted(set(listed) - set(ranges))]
    found += [
        f"environment.yml: {name} {listed[name]} differs from {ranges[name]} in pyproject.toml"
        for name in sorted(set(listed) & set(ranges))
        if listed[name] != ranges[name]
    ]
    return found


def mutations() -> list[tuple[str, str, str]]:
    """Every single range or pin, changed or removed: (file, old text, new text)."""
    texts = read()
    project = tomllib.loads(texts["pyproject.toml"])["project"]
    out = []
    for line in [*project["dependencies"], *(r for e in project["optional-dependencies"].values() for r in e)]:
        name = Requirement(line).name
        out.append(("pyproject.toml", f'"{line}"', f'"{name}>=99,<100"'))
        pin = re.search(rf"^{re.escape(name)}==.*$", texts["requirements.txt"], re.M)
        if pin:
            out.append(("requirements.txt", pin[0], pin[0].replace(name, "not-" + name, 1)))
    out.append(("requirements-torch.txt", "torch==", "torch==1."))
    out.append(("environment.yml", "python =3.12", "python =3.10"))
    for entry in yaml.safe_load(texts["environment.yml"])["dependencies"]:
        for text in entry["pip"] if isinstance(entry, dict) else [entry]:
            if text != "pip":
                out.append(("environment.yml", f"- {text}\n", "- python-is-not-this >=1\n"))
    return out


def test_the_files_agree():
    assert disagreements(read()) == []


@pytest.mark.parametrize(("name", "old", "new"), mutations())
def test_every_single_change_is_noticed(name, old, new):
    texts = read()
    assert texts[name].count(old) >= 1
    texts[name] = texts[name].replace(old, new, 1)
    assert disagreements(texts), f"{name}: {old!r} -> {new!r} went unnoticed"


def test_every_pin_is_hashed_and_names_no_place():
    text = read()["requirements.txt"]
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text)
    pins = [b for b in blocks if LOCKED.match(b)]
    assert len(pins) > 100
    assert all("--hash=sha256:" in b for b in pins)
    assert "://" not in text and not re.search(r"^-{1,2}(?!hash)\w", text, re.M)


def test_lock_covers_other_platforms():
    """A lock resolved for Linux alone would fail elsewhere under --require-hashes: macOS needs appnope."""
    assert re.search(r"^appnope==.*sys_platform == 'darwin'", read()["requirements.txt"], re.M)


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda p: p.name)
def test_workflows_ask_for_no_more_than_they_need(path):
    workflow = yaml.safe_load(path.read_text("utf8"))
    assert workflow["permissions"] == {"contents": "read"}
    writes = {
        name: {k for k, v in job.get("permissions", {}).items() if v == "write"}
        for name, job in workflow["jobs"].items()
    }
    assert all(not scopes or (name == "deploy" and scopes == {"pages", "id-token"}) for name, scopes in writes.items())
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


def test_scripts_are_executable():
    for name in ("postBuild", "start", ".ci/run"):
        assert (ROOT / name).stat().st_mode & 0o111, f"{name} must be executable"
