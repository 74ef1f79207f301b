"""One browser for all tests of a session, over http and from disk."""

from __future__ import annotations

import pytest
from browsing import CHROMIUM, find_chromium, open_browser, serve


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; where none is installed a test is skipped, and under CI fails."""
    if find_chromium() is None:
        pytest.skip(f"no Chromium found among {', '.join(CHROMIUM)}")
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def served(site):
    """The address of the built site on a local server."""
    with serve(site) as address:
        yield address


@pytest.fixture(scope="session", params=["http", "disk"])
def address(request, site):
    """The address of the built site: once from a server, once from disk."""
    return request.getfixturevalue("served") if request.param == "http" else site.as_uri()
