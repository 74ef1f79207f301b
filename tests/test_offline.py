"""No page asks another host for anything: the vendored files, the checks, and the built site."""

from __future__ import annotations

import json
import re
import shutil

import books  # noqa: F401  (puts the extensions and tools on the import path)
import offline
import pytest
import vendor_assets

REMOTE_HTML = [
    '<img alt="x" src="https://example.org/a.png">',
    "<img src=//example.org/a.png>",
    '<img srcset="a.png 1x, https://example.org/b.png 2x" src="a.png">',
    "<source srcset='//example.org/c.webp'>",
    '<script async src="https://example.org/a.js"></script>',
    '<iframe src="http://example.org/"></iframe>',
    '<video poster="https://example.org/p.png"></video>',
    '<link rel="stylesheet" href="https://example.org/a.css">',
    '<link href="https://example.org/a.woff2" rel="preload">',
    '<link rel="preconnect" href="https://example.org">',
    '<link rel="shortcut icon" href="//example.org/f.ico">',
    '<div style="background: url(https://example.org/a.png)">x</div>',
    "<style>@import 'https://example.org/a.css';</style>",
    "<style>@font-face { src: url('//example.org/a.woff2') }</style>",
    '<svg><use href="https://example.org/a.svg#x"></use></svg>',
    '<script>fetch("https://example.org/data.json")</script>',
    "<script type='module'>import x from 'https://example.org/x.js'</script>",
    "<script type='module'>const x = await import(`https://example.org/x.js`)</script>",
    "<script>document.createElement('script').src = 'https://example.org/x.js'</script>",
    '<script>new WebSocket("wss://example.org/")</script>',
]
LOCAL_HTML = [
    '<a href="https://example.org/">a link is a click</a>',
    '<link rel="canonical" href="https://example.org/page.html">',
    '<img src="data:image/png;base64,AAAA//BB" srcset="_images/a.png 2x">',
    '<script src="../_static/vendor/mathjax/tex-chtml.js"></script>',
    '<div style="background: url(../_static/a.png)">x</div>',
    "<script>// see https://example.org/\nfetch('data.json')</script>",
    "<pre>fetch('https://example.org/')</pre>",
    '<form action="../search.html"><input type="search"></form>',
]


def widget_state(module):
    state = {"state": {"id": {"model_module": module, "model_name": "M", "state": {}}}, "version_major": 2}
    return f'<script type="application/vnd.jupyter.widget-state+json">{json.dumps(state)}</script>'


@pytest.mark.parametrize("html", [*REMOTE_HTML, widget_state("anywidget")])
def test_what_a_browser_would_fetch_is_found(html):
    assert offline.remote_assets(f"<html><body>{html}</body></html>")


@pytest.mark.parametrize("html", [*LOCAL_HTML, widget_state("@jupyter-widgets/controls")])
def test_what_a_browser_would_not_fetch_is_let_be(html):
    assert offline.remote_assets(f"<html><body>{html}</body></html>") == []


def test_a_site_is_searched_page_by_page_style_by_style_and_script_by_script(tmp_path):
    files = {
        "book/a.html": REMOTE_HTML[0],
        "book/b.html": LOCAL_HTML[0]
        + '<script src="../_static/js/ours.js?v=1"></script><img src="gone.png">',
        "_static/css/a.css": "/* url(https://example.org/no) */ a { b: url(https://example.org/yes) }",
        "_static/js/ours.js": 'fetch("https://example.org/yes")',
        "_static/vendor/lib.js": 'fetch("https://example.org/no")',
        "_static/theme.js": 'fetch("https://example.org/no")',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf8")
    assert offline.check_site(tmp_path) == [
        "_static/css/a.css: remote asset https://example.org/yes",
        "_static/js/ours.js: remote asset https://example.org/yes",
        "book/a.html: remote asset https://example.org/a.png",
        "book/b.html: there is no gone.png",
    ]


@pytest.mark.book
def test_the_built_site_fetches_nothing(site):
    assert offline.check_site(site) == []


@pytest.mark.book
def test_the_built_site_has_no_trace_of_thebe(site):
    pages = [p for p in site.rglob("*.html") if "_static" not in p.parts]
    assert pages
    assert not [p.name for p in pages if re.search("THEBE_JS_URL|x-thebe|sphinx-thebe", p.read_text("utf8"))]


def test_the_vendored_files_are_those_of_the_manifest():
    assert vendor_assets.problems() == []


@pytest.mark.parametrize(
    ("mutate", "message"),
    [
        (lambda folder: (folder / "mathjax/tex-chtml.js").write_text("x", "utf8"), "checksum"),
        (lambda folder: (folder / "mathjax/LICENSE").unlink(), "not in the folder"),
        (lambda folder: (folder / "mathjax/new.js").write_text("x", "utf8"), "not in the manifest"),
        (lambda folder: edit_manifest(folder, lambda package: package.pop("licence")), "no licence named"),
    ],
    ids=["changed", "missing", "added", "no licence"],
)
def test_a_mutated_copy_is_noticed(tmp_path, mutate, message):
    folder = tmp_path / "vendor"
    shutil.copytree(vendor_assets.VENDOR, folder)
    mutate(folder)
    assert [line for line in vendor_assets.problems(folder) if message in line]


def edit_manifest(folder, change):
    path = folder / vendor_assets.MANIFEST
    manifest = json.loads(path.read_text("utf8"))
    change(manifest["packages"][0])
    path.write_text(json.dumps(manifest), "utf8")


def test_the_manifest_names_the_packages_that_would_be_fetched():
    manifest = json.loads((vendor_assets.VENDOR / vendor_assets.MANIFEST).read_text("utf8"))
    listed = {(p["name"], p["version"], p["licence"]) for p in manifest["packages"]}
    assert listed == {(p.npm, p.version, p.licence) for p in vendor_assets.PACKAGES}
