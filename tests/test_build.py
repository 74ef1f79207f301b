"""The driver: red on each planted fault, red again, green once mended; locks, costs, interrupts."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time

import psutil
import pytest
from books import NOTEBOOK, TrialBook, notebook

pytestmark = pytest.mark.book

# Each of two pages waits for the other: neither ends unless both run at the same time.
MEET = """
import time, pathlib
here = pathlib.Path("{mine}")
here.touch()
for _ in range(600):
    if pathlib.Path("{other}").exists():
        break
    time.sleep(0.1)
else:
    raise TimeoutError("the other page was not running")
print("met")
"""
THREADS = 'import os\nprint("threads", os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"])'
LARGE = "block = bytearray(300_000_000)\ndel block"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A clean book of two pages with code that must run side by side."""
    book = TrialBook(tmp_path_factory.mktemp("build") / "book")
    book.contents("book/index", "book/a", "book/part/b", "book/status")
    book.write("book/index.md", "# Index\n\nSee {doc}`a` and {cite:t}`some`.\n\n```{bibliography}\n```\n")
    book.write("book/a.md", notebook("Page of A", MEET.format(mine="a.met", other="part/b.met"), THREADS))
    book.write("book/part/b.md", notebook("Page of B", MEET.format(mine="b.met", other="../a.met"), LARGE))
    book.write("book/status.md", NOTEBOOK + "# Status\n\n```{status}\n```\n")  # a notebook that runs no code
    built = book.build()
    assert built.status == 0, built.output
    assert built.executed == {"book/a", "book/part/b"}
    assert built.output.splitlines()[-1] == str(book.html / "index.html")
    return book


def test_two_pages_run_side_by_side_with_one_thread_each(book):
    assert "met" in book.page("book/a") and "met" in book.page("book/part/b")
    assert "threads 1 1" in book.page("book/a")


def test_the_first_page_is_where_the_site_opens(book):
    assert 'url=book/index.html"' in (book.html / "index.html").read_text("utf8")


def red_twice(book, *expected):
    """Build twice without a change: red both times, for the same stated reason."""
    first, second = book.build(), book.build()
    for built in (first, second):
        assert built.status == 1, built.output
        assert built.red_lines, built.output
        for text in expected:
            assert text in built.output, built.output
    return first


FAULTS_IN_TEXT = """
{ref}`nowhere-at-all`, {doc}`no-such-page`, {cite:t}`nobody2000`

![An image from elsewhere](https://example.org/x.png)

<script src="//example.org/x.js"></script>
"""
SPHINX = "RED  Sphinx warned"


def test_unknown_references_and_remote_assets_are_red_twice(book):
    clean = (book.root / "book/index.md").read_text("utf8")
    book.write("book/index.md", clean + FAULTS_IN_TEXT)
    remote = [
        f"RED  book/index.html: remote asset {url}"
        for url in ("https://example.org/x.png", "//example.org/x.js")
    ]
    built = red_twice(book, SPHINX, "nowhere-at-all", "no-such-page", "nobody2000", *remote)
    book.write("book/index.md", clean)
    assert built.executed == set()  # a red build costs reading, not running


def test_failing_cells_and_missing_pages_are_red_twice_and_green_once_mended(book):
    names = ("book/a.md", "book/part/b.md", "_toc.yml")
    clean = {name: (book.root / name).read_text("utf8") for name in names}
    book.write("book/a.md", notebook("Page of A", "x = 1", "raise RuntimeError('planted')"))
    book.write("book/part/b.md", notebook("Page of B", "import sys\nprint('planted words', file=sys.stderr)"))
    book.contents("book/index", "book/a", "book/part/b", "book/status", "book/unwritten")
    missing = "RED  book/unwritten: in the table of contents, but there is no book/unwritten.md"
    built = red_twice(book, SPHINX, "RuntimeError: planted", "stderr was found", missing)
    assert built.steps["FAILED"] == {"book/a"} and built.executed == {"book/part/b"}
    assert "failed" in book.page("book/status") and 'data-page-digest="failed"' in book.page("book/a")
    for name, text in clean.items():
        book.write(name, text)
    mended = book.build()
    assert mended.status == 0, mended.output
    assert "met" in book.page("book/a")


def test_leftovers_go_and_a_page_changed_by_hand_is_red_until_made_again(book):
    left = book.html / "book" / "left.html"
    left.write_text("<p>left over</p>", "utf8")
    page = book.html / "book" / "a.html"
    page.write_text(
        page.read_text("utf8").replace("data-page-digest=", 'data-page-digest="0" data-x='), "utf8"
    )
    first = book.build()
    assert "RED  book/a: built from 0" in first.output and first.status == 1
    assert not left.exists() and "book/left.html" in first.steps["removed"]
    assert (mended := book.build()).status == 0, mended.output


def test_costs_are_kept_with_the_run_and_shown(book):
    records = book.records()
    assert set(records) == {"book/a", "book/part/b"}
    # 300 MB were held for a moment only; page a held no such block.
    assert records["book/part/b"]["peak_bytes"] > records["book/a"]["peak_bytes"] + 250e6
    page = book.page("book/status")
    for docname, title in {"book/a": "Page of A", "book/part/b": "Page of B"}.items():
        record = records[docname]
        row = page[page.index(title, page.index("<table")) :].split("</tr>")[0]
        assert f"{record['seconds']:.1f} s" in row and f"{record['peak_bytes'] / 1e6:.0f} MB" in row
        assert record["executed"][:16].replace("T", " ") in row
    assert os.uname().nodename not in page


def test_a_run_beyond_the_bound_is_red_until_measured_again(book):
    (run,) = (book.store / "book/a").glob("*/run.json")
    record = json.loads(run.read_text("utf8"))
    run.write_text(json.dumps(record | {"seconds": 500.0}), "utf8")
    red_twice(book, "costs 500 s of 300 s to run")
    assert "over budget: 500 s of 45 s" in book.page("book/status")
    mended = book.build("--rerun", "book/a")
    assert (mended.status, mended.executed) == (0, {"book/a"}), mended.output
    assert "over budget" not in book.page("book/status")
    assert f"{book.records()['book/a']['seconds']:.1f} s" in book.page("book/status")


def test_links_follow_the_address_and_are_absent_without_one(book):
    words = ("mybinder.org", "github.com/someone", "/issues/new", "source-file-button")
    assert not [word for word in words if word in book.page("book/a")]
    with_address = book.build(BOOK_REPOSITORY="https://github.com/someone/notes.git")
    assert (with_address.status, with_address.executed) == (0, set()), with_address.output
    page = book.page("book/a")
    for link in (
        "https://mybinder.org/v2/gh/someone/notes/main?urlpath=lab/tree/book/a.md",
        "https://github.com/someone/notes/blob/main/book/a.md?plain=1",
        "https://github.com/someone/notes/issues/new?",
        'href="https://github.com/someone/notes"',
        'class="fas fa-play"',
    ):
        assert link in page
    assert not [
        word
        for word in ("colab", "jupyterhub", "thebe", "executablebooks/jupyter-book")
        if word in page.lower()
    ]
    assert (without := book.build()).status == 0, without.output
    assert not [word for word in words if word in book.page("book/a")]


def test_pages_that_run_code_are_offered_as_notebooks_with_or_without_an_address(book):
    assert (built := book.build()).status == 0, built.output
    for page, offered in {"book/a": True, "book/part/b": True, "book/index": False, "book/status": False}.items():
        stored = book.html / "_sources" / f"{page}.ipynb"
        assert (f'_sources/{page}.ipynb"' in book.page(page), stored.exists()) == (offered, offered)
    assert 'pip install \\".[pages]\\"' in (book.html / "_sources/book/a.ipynb").read_text("utf8")
    assert book.build(BOOK_REPOSITORY="https://github.com/someone/notes").status == 0
    for page in ("book/index", "book/status"):
        assert "mybinder.org" not in book.page(page) and not (book.html / "_sources" / f"{page}.ipynb").exists()
    text = (book.html / "_sources/book/a.ipynb").read_text("utf8")
    assert "git+https://github.com/someone/notes@main" in text and '"text": [' not in text  # no outputs
    assert book.build().status == 0


def test_a_bad_address_stops_the_build_with_a_reason(book):
    built = book.build(BOOK_REPOSITORY="someone/notes")
    assert built.status == 2
    reason = "build_book: BOOK_REPOSITORY is 'someone/notes'; expected an address like"
    assert built.output.startswith(reason), built.output  # nothing was loaded, let alone run


def test_a_build_says_at_once_that_it_is_at_work_and_what_it_found(book):
    unchanged = book.build()
    assert unchanged.status == 0, unchanged.output
    assert unchanged.output.startswith("  loading   Sphinx and its extensions, for a book of 4 pages\n")
    assert "  checked   digests of 4 pages, 0 to read\n" in unchanged.output


def test_a_page_edited_while_it_runs_is_red_and_its_outputs_are_not_kept(book):
    clean = (book.root / "book/a.md").read_text("utf8")
    book.write("book/late.py", "")
    book.write(
        "book/a.md",
        notebook("Page of A", "from pathlib import Path\nPath('late.py').write_text('x = 1')\nimport late"),
    )
    built = book.build()
    assert built.status == 1 and "its code changed while it ran" in built.output
    assert book.build().status == 0  # now late.py stays as it is
    (book.root / "book/late.py").unlink()
    book.write("book/a.md", clean)


@pytest.mark.parametrize("arguments", [["--jobs", "0"], ["--rerun", "book/nothing"]])
def test_bad_arguments_are_refused(book, arguments):
    assert book.build(*arguments).status == 2


def test_one_build_at_a_time(book):
    with (book.root / "_build" / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = book.build()
    assert refused.status == 2 and "another build is running" in refused.output


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_build_leaves_no_kernel_and_the_next_one_is_right(book, how):
    clean = (book.root / "book/a.md").read_text("utf8")
    started = book.root / "book" / "started"
    says = "pathlib.Path('started').write_text(str(os.getpid()))"
    cell = f"import os, pathlib, time\n{says}\ntime.sleep(200)  # {how}"
    book.write("book/a.md", notebook("Page of A", cell))
    build = subprocess.Popen(
        book.command(), env=book.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: started.exists() and started.read_text())
    kernel = psutil.Process(int(started.read_text()))
    build.send_signal(how)
    assert build.wait(60) == (-how if how == signal.SIGKILL else 130)
    wait_for(lambda: not kernel.is_running() or kernel.status() == psutil.STATUS_ZOMBIE)
    started.unlink()
    book.write("book/a.md", clean)
    after = book.build()
    assert after.status == 0, after.output
    assert after.executed <= {"book/a"} and "met" in book.page("book/a")


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise TimeoutError("waited for a minute")
