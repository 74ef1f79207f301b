"""Small books to try the build on: the real configuration and driver, a package and pages of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
EXTENSIONS = ROOT / "book" / "_ext"
DRIVER = ROOT / "tools" / "build_book.py"
for _folder in (EXTENSIONS, DRIVER.parent):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

NOTEBOOK = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

"""
LEFT_OUT = ("ledger", "alt_text")  # they judge the real book's claims and figures
STEP = re.compile(r"^  (executed|FAILED|read|removed|dropped) +(?:old run )?([^\s:]+)", re.M)


def notebook(title: str, *cells: str, prose: str = "Some prose.") -> str:
    """The source of a page with code cells."""
    fenced = "".join(f"```{{code-cell}} ipython3\n{cell}\n```\n\n" for cell in cells)
    return f"{NOTEBOOK}# {title}\n\n{prose}\n\n{fenced}"


def registry_with(page: str, *claims: str) -> str:
    """The text of the registry of claims, with these claims placed on `page` whatever page they belong to."""
    text = (ROOT / "attncore" / "course" / "claims.toml").read_text("utf8")
    for claim in claims:
        text, count = re.subn(rf'(^\[{claim}\]\n(?:(?!^\[).*\n)*?)page = "[^"]*"', rf'\1page = "{page}"', text,
                              count=1, flags=re.M)  # fmt: skip
        assert count == 1, claim
    return text


@dataclass(frozen=True)
class Built:
    """What a build said and did."""

    status: int
    output: str
    steps: dict[str, set[str]] = field(init=False)

    def __post_init__(self) -> None:
        steps: dict[str, set[str]] = {}
        for word, name in STEP.findall(self.output):
            steps.setdefault(word, set()).add(name)
        object.__setattr__(self, "steps", steps)

    @property
    def executed(self) -> set[str]:
        return self.steps.get("executed", set())

    @property
    def read(self) -> set[str]:
        return self.steps.get("read", set())

    @property
    def red_lines(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.startswith("RED  ")]


class TrialBook:
    """A book in a folder of its own, built by the real driver in a process of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.html = root / "_build" / "html"
        self.store = root / "_build" / ".jupyter_cache"
        (root / "book").mkdir(parents=True)
        for name in ("_ext", "_static", "_templates"):
            (root / "book" / name).symlink_to(ROOT / "book" / name)
        config = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))
        config["title"] = "Trial"
        for name in LEFT_OUT:
            config["sphinx"]["local_extensions"].pop(name, None)
        self.write("_config.yml", yaml.safe_dump(config))
        self.write(
            "book/references.bib",
            "@book{some, author={Some One}, title={Thing}, publisher={P}, year={2000}}\n",
        )
        self.write("requirements.txt", "some==1\n")

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf8")
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text("utf8")
        assert old in text, f"{name} has no {old!r}"
        self.write(name, text.replace(old, new))

    def contents(self, *pages: str) -> None:
        """Write ``_toc.yml``: the root page, then chapters."""
        first, *rest = pages
        self.write(
            "_toc.yml",
            yaml.safe_dump({"format": "jb-book", "root": first, "chapters": [{"file": p} for p in rest]}),
        )

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(DRIVER), "--root", str(self.root), *arguments]

    def environment(self, **extra: str) -> dict[str, str]:
        plain = {
            key: value for key, value in os.environ.items() if key not in ("BOOK_REPOSITORY", "BOOK_JOBS")
        }
        return plain | {"NO_COLOR": "1"} | extra

    def build(self, *arguments: str, **extra: str) -> Built:
        """Build from another working folder than the book's, standard error after standard output."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.root.parent,
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Built(done.returncode, done.stdout + done.stderr)

    def page(self, docname: str) -> str:
        return (self.html / f"{docname}.html").read_text("utf8")

    def records(self) -> dict[str, dict]:
        """The record of each stored run, by page; a page with two runs fails."""
        found = {}
        for path in self.store.rglob("run.json"):
            docname = path.parent.parent.relative_to(self.store).as_posix()
            assert docname not in found, f"{docname} has an old run left"
            found[docname] = json.loads(path.read_text("utf8"))
        return found
