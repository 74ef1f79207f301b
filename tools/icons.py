"""Write ``book/_static/css/icons.css``: the few icons that the theme's pages use, as masks in the colour of the text.

The theme brings all of Font Awesome, a script of 1.5 MB and a font of 156 kB, to show about twenty icons. Their
outlines are taken from that script, so the style sheet needs a new run when the theme is renewed:
``python tools/icons.py``; with ``--check`` the file is compared and left alone.
"""

from __future__ import annotations

import argparse
import re
import sys
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

TARGET = Path(__file__).resolve().parents[1] / "book" / "_static" / "css" / "icons.css"
SCRIPT = "theme/pydata_sphinx_theme/static/scripts/fontawesome.js"
ICONS = (
    "angle-left", "angle-right", "arrow-up", "bars", "bitbucket", "circle-half-stroke", "code", "download", "expand",
    "file", "file-lines", "file-pdf", "github", "gitlab", "house", "lightbulb", "list", "magnifying-glass",
    "moon", "outdent", "pencil", "play", "rocket", "sun", "up-right-from-square", "xmark",
)  # fmt: skip
ALIASES = {"house": ("home",), "pencil": ("pencil-alt",)}
TITLES = {
    "circle-info": ("note", "seealso"),
    "lightbulb": ("tip", "hint"),
    "triangle-exclamation": ("warning", "caution", "danger", "error", "attention", "important"),
}
"""Icon before the title of an admonition -> kinds of admonition."""
SAFE = " =:/'"
HEAD = """/* Written by tools/icons.py; change that, not this.
   Outlines: Font Awesome Free {version} by @fontawesome, https://fontawesome.com, licence CC BY 4.0. */
.fa-solid, .fas, .fa-brands, .fab, .fa {{
  display: inline-block;
  width: 1em;
  height: 1em;
  vertical-align: -0.125em;
  font-family: inherit;
  background-color: currentcolor;
  mask: var(--icon) center / contain no-repeat;
}}
:is(.fa-solid, .fas, .fa-brands, .fab, .fa)::before {{ content: none !important; }}
.admonition > .admonition-title::after {{
  content: "" !important;
  font: inherit !important;
  background-color: currentcolor;
  mask: var(--icon, linear-gradient(transparent, transparent)) center / contain no-repeat;
}}
/* the book's own boxes carry their sign in front, or none */
.admonition:is(.proof, .exercise, .solution, .see, .claim, .hint) > .admonition-title::after {{
  content: none !important;
}}
@media (forced-colors: active) {{
  .fa-solid, .fas, .fa-brands, .fab, .fa {{ forced-color-adjust: none; background-color: ButtonText; }}
  .admonition > .admonition-title::after {{ forced-color-adjust: none; background-color: CanvasText; }}
}}
"""


def outline(script: str, name: str) -> str:
    """SVG of the icon ``name`` as a data address; of several styles the script holds the solid one last."""
    found = re.findall(rf'[{{,]"?{re.escape(name)}"?:\[(\d+),(\d+),\[[^\]]*\],"\w+","([^"]+)"\]', script)
    if not found:
        raise ValueError(f"name must be an icon of the theme's script, got {name!r}")
    width, height, path = found[-1]
    picture = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}'><path d='{path}'/></svg>"
    return f'url("data:image/svg+xml,{quote(picture, safe=SAFE)}")'


def style_sheet() -> str:
    """The whole style sheet, from the script of the installed theme."""
    theme = files("pydata_sphinx_theme")
    script, licence = (theme.joinpath(name).read_text("utf8") for name in (SCRIPT, f"{SCRIPT}.LICENSE.txt"))
    lines = [HEAD.format(version=re.search(r"Font Awesome Free ([\d.]+)", licence)[1])]
    for name in ICONS:
        classes = ", ".join(f".fa-{each}" for each in (name, *ALIASES.get(name, ())))
        lines.append(f"{classes} {{ --icon: {outline(script, name)}; }}\n")
    for name, kinds in TITLES.items():
        titles = ", ".join(f".admonition.{kind}" for kind in kinds)
        lines.append(f":is({titles}) > .admonition-title {{ --icon: {outline(script, name)}; }}\n")
    return "".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the installed theme, change nothing")
    wanted = style_sheet()
    if parser.parse_args(argv).check:
        same = TARGET.read_text("utf8") == wanted
        print(f"{TARGET.name} {'agrees' if same else 'does not agree'} with the theme's icons")
        return 0 if same else 1
    TARGET.write_text(wanted, "utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
