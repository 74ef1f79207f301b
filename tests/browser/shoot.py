"""Photograph every page of the built site: light, dark, telephone, and print as PDF. Look before you finish.

python tests/browser/shoot.py FOLDER [--site _build/html] [--only TEXT-IN-THE-PAGE-NAME] [--kinds light,dark,...]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from browsing import ROOT, chapter_names, open_browser, open_page, serve, visit

KINDS = {
    "light": {"mode": "light", "width": 1280},
    "dark": {"mode": "dark", "width": 1280},
    "narrow": {"mode": "light", "width": 390},
    "narrow-dark": {"mode": "dark", "width": 390},
    "print": {"mode": "light", "width": 1280},
}


def photograph(site: Path, folder: Path, names: list[str], kinds: list[str]):
    """Write one file for each page and kind into `folder`; yield their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    with serve(site) as address, open_browser() as browser:
        for kind in kinds:
            with open_page(browser, **KINDS[kind]) as page:
                for name in names:
                    visit(page, f"{address}/{name}.html")
                    target = folder / f"{name.replace('/', '.')}.{kind}.{'pdf' if kind == 'print' else 'png'}"
                    if kind == "print":
                        page.pdf(path=target, format="A4", print_background=True)
                    else:
                        page.screenshot(path=target, full_page=True)
                    yield target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--site", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--toc", type=Path, default=ROOT / "_toc.yml")
    parser.add_argument("--only", default="", help="photograph only pages whose name contains this")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"some of {', '.join(KINDS)}")
    arguments = parser.parse_args()
    names = [name for name in [*chapter_names(arguments.toc), "search"] if arguments.only in name]
    kinds = arguments.kinds.split(",")
    if not names:
        parser.error(f"no page has {arguments.only!r} in its name")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"kinds must be among {', '.join(KINDS)}, got {', '.join(sorted(unknown))}")
    for path in photograph(arguments.site, arguments.folder, names, kinds):
        print(path)


if __name__ == "__main__":
    main()
