"""A real Chromium over a built site: finding it, serving the site, opening pages that keep a log."""

from __future__ import annotations

import functools
import re
import shutil
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))  # for shoot.py, which runs by itself

from freshness import toc_pages  # noqa: E402

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 20_000  # milliseconds, for a machine with other work
SPECIAL = {
    "index": "redirects to the first page",
    "search": "the search",
    "genindex": "the index",
    "prf-prf": "the index of theorems and definitions",
}
"""Pages that Sphinx makes itself, with what they are."""


def find_chromium() -> str | None:
    """Return the path of an installed Chromium, or None."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def chapter_names(toc: Path = ROOT / "_toc.yml") -> list[str]:
    """Return the pages of the table of contents, in reading order."""
    return toc_pages(ROOT, toc)


CHAPTERS_WITH_CODE = [name for name in chapter_names() if "{code-cell}" in (ROOT / f"{name}.md").read_text("utf8")]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def serve(folder: Path):
    """Serve `folder` on a free local port; gives the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def open_browser(executable: str | None = None):
    """Start a headless Chromium with an empty profile."""
    executable = executable or find_chromium()
    if executable is None:
        raise FileNotFoundError(f"no Chromium found; looked for {', '.join(CHROMIUM)}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Log:
    """What a page did while it was open."""

    errors: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def copy(self) -> Log:
        return Log(list(self.errors), list(self.failed), list(self.foreign))

    def clear(self) -> None:
        for kept in (self.errors, self.failed, self.foreign):
            kept.clear()


def keep_log(page: Page, address: str) -> Log:
    """Record console errors, uncaught errors, failed requests and requests that leave `address`."""
    log, home = Log(), urlsplit(address).netloc

    def requested(request):
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about", "file") and parts.netloc != home:
            log.foreign.append(request.url)

    def said(message):
        if message.type == "error":
            log.errors.append(f"console: {message.text} ({message.location.get('url')})")

    page.on("console", said)
    page.on("pageerror", lambda e: log.errors.append(f"uncaught: {e}"))
    page.on("request", requested)
    page.on("requestfailed", lambda r: log.failed.append(f"{r.url}: {r.failure}"))
    page.on("response", lambda r: log.failed.append(f"{r.url}: {r.status}") if r.status >= 400 else None)
    return log


@contextmanager
def open_page(browser: Browser, width: int = 1280, mode: str | None = None, mathematics: bool = True):
    """Open a page in a context of its own.

    `mode` is the reader's choice, "light" or "dark". A test of something else than formulas saves their time with
    ``mathematics=False``: MathJax is not loaded, and they stay as TeX.
    """
    context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    if not mathematics:
        context.route(re.compile("/vendor/mathjax/"), lambda route: route.abort())
    if mode:
        store = "localStorage.getItem('mode') || localStorage.setItem('mode', '{0}')"
        context.add_init_script(f"try {{ {store.format(mode)} }} catch (e) {{ }}")
    try:
        yield context.new_page()
    finally:
        context.close()


def visit(page: Page, address: str) -> None:
    """Go to `address` and wait until pictures are loaded and the mathematics is typeset."""
    page.goto(address, wait_until="load")
    page.evaluate("() => window.MathJax?.startup?.promise?.then(() => null)")


def watch_shifts(page: Page) -> None:
    """Add up, from the next navigation on, how far what is on the screen moves without the reader's doing."""
    page.add_init_script(
        """window.__shift = 0;
        new PerformanceObserver((list) => {
          for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.__shift += entry.value;
        }).observe({ type: "layout-shift", buffered: true });"""
    )


def shifts(page: Page) -> float:
    """Return the cumulative layout shift so far; below 0.1 is commonly called good."""
    return page.evaluate("() => new Promise((done) => { setTimeout(() => done(window.__shift), 100); })")
