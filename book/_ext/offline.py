"""Keep the site free of anything a browser would fetch from elsewhere by itself.

The checks need no Sphinx; the extension takes out the Thebe launcher, which names a remote script.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

REMOTE = r"""(?:https?:)?//[^\s"'<>)]+"""
LOADING_TAG = re.compile(
    r"<(script|img|iframe|source|video|audio|embed|object|track|input|image|use)\b[^>]*>", re.I
)
LOADING_ATTRIBUTE = re.compile(rf"""\b(?:src|data|poster|href|xlink:href)\s*=\s*["']?({REMOTE})""", re.I)
SRCSET = re.compile(r"""\b(?:srcset|imagesrcset)\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.I)
LOCAL_FILE = re.compile(r"""\b(?:src|href)\s*=\s*["']([^"'#?:]+)["'#?]""", re.I)
LINK = re.compile(r"<link\b[^>]*>", re.I)
RELS = "stylesheet|preload|prefetch|preconnect|icon|modulepreload|dns-prefetch|manifest"
LOADING_REL = re.compile(rf"""\brel\s*=\s*["']?[^"'>]*\b({RELS})""", re.I)
STYLE = re.compile(rf"""url\(\s*["']?({REMOTE})|@import\s+["']({REMOTE})""", re.I)
STYLE_PLACES = re.compile(
    r"""<style\b[^>]*>(.*?)</style>|\bstyle\s*=\s*"([^"]*)"|\bstyle\s*=\s*'([^']*)'""", re.I | re.S
)
SCRIPT = re.compile(r"<script\b(?P<attributes>[^>]*)>(?P<body>.*?)</script>", re.I | re.S)
CALL = re.compile(
    rf"""\b(?:fetch|import|importScripts|Worker|EventSource|WebSocket|sendBeacon|open)\s*\(\s*["'`]((?:wss?:)?{REMOTE})"""
    rf"""|\bfrom\s+["']({REMOTE})|\bimport\s+["']({REMOTE})|\.(?:src|href)\s*=\s*["'`]({REMOTE})"""
)
WIDGET_MODULES = {"@jupyter-widgets/base", "@jupyter-widgets/controls", "@jupyter-widgets/output"}
OUR_SCRIPTS = ("css", "js")  # folders of _static whose scripts are ours; the theme's are not called at load


def remote_assets(html: str) -> list[str]:
    """What in a page a browser fetches from another host without a click."""
    found = []
    for tag in LOADING_TAG.finditer(html):
        found += LOADING_ATTRIBUTE.findall(tag[0])
    for link in LINK.findall(html):
        if LOADING_REL.search(link):
            found += LOADING_ATTRIBUTE.findall(link)
    for srcset in SRCSET.finditer(html):
        found += re.findall(rf"(?:^|,)\s*({REMOTE})", srcset[1] or srcset[2] or "")
    for place in STYLE_PLACES.finditer(html):
        found += remote_in_css(place[1] or place[2] or place[3] or "")
    for script in SCRIPT.finditer(html):
        if "widget-state" in script["attributes"]:
            found += foreign_widgets(script["body"])
        elif "json" not in script["attributes"]:
            found += remote_in_js(script["body"])
    return found


def local_assets(html: str) -> list[str]:
    """Relative addresses of the scripts, styles and pictures that a page loads."""
    tags = [tag[0] for tag in LOADING_TAG.finditer(html)]
    tags += [link for link in LINK.findall(html) if LOADING_REL.search(link)]
    return [address for tag in tags for address in LOCAL_FILE.findall(tag)]


def remote_in_css(text: str) -> list[str]:
    return [a or b for a, b in STYLE.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S))]


def remote_in_js(text: str) -> list[str]:
    code = re.sub(r"/\*.*?\*/|^\s*//.*$", "", text, flags=re.S | re.M)
    return [next(filter(None, groups)) for groups in CALL.findall(code)]


def foreign_widgets(state: str) -> list[str]:
    """Widget modules the vendored manager does not hold: it would ask a content network for them."""
    models = json.loads(state).get("state", {}).values()
    modules = {model.get("model_module", "") for model in models}
    return sorted(f"widget module {name}" for name in modules - WIDGET_MODULES)


def check_site(html: Path) -> list[str]:
    """Remote assets of a built site, and local ones that are not there, as messages."""
    lines = []
    for path in sorted(html.rglob("*")):
        relative = path.relative_to(html)
        if "vendor" in relative.parts or not path.is_file():
            continue
        if path.suffix == ".html" and relative.parts[0] != "_static":
            text = path.read_text("utf8", "replace")
            found = remote_assets(text)
            lost = (one for one in local_assets(text) if not (path.parent / unquote(one)).is_file())
            lines += [f"{relative.as_posix()}: there is no {one}" for one in dict.fromkeys(lost)]
        elif path.suffix == ".css":
            found = remote_in_css(path.read_text("utf8", "replace"))
        elif path.suffix in (".js", ".mjs") and len(relative.parts) > 2 and relative.parts[1] in OUR_SCRIPTS:
            found = remote_in_js(path.read_text("utf8", "replace"))
        else:
            continue
        lines += [f"{relative.as_posix()}: remote asset {what[:120]}" for what in dict.fromkeys(found)]
    return lines


def unplug_thebe(app, config) -> None:
    """Take out the Thebe launcher, which puts a remote address and a configuration into each page."""
    for listeners in app.events.listeners.values():
        for listener in list(listeners):
            if listener.handler.__module__.partition(".")[0] == "sphinx_thebe":
                app.disconnect(listener.id)
    app.registry.css_files = [entry for entry in app.registry.css_files if "thebe" not in entry[0]]


def setup(app) -> dict:
    app.connect("config-inited", unplug_thebe)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
