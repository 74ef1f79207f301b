"""Digests: what changes them, what does not, and what they make of a built site."""

from __future__ import annotations

import ast
import os

import books
import freshness
import import_closure
import page_source
import pytest
from books import NOTEBOOK, TrialBook, notebook

LOADER = "attncore/course/data_files.py"


@pytest.fixture
def tree(tmp_path):
    """A small tree: a package, data, three pages; nothing is built."""
    files = {
        "attncore/__init__.py": "",
        "attncore/svm/__init__.py": "from attncore.svm.solve import solve\n",
        "attncore/svm/solve.py": "from ..shared import tool\n\ndef solve(): return tool()\n",
        "attncore/shared.py": "def tool(): return 1\n",
        "attncore/other.py": "def f():\n    import attncore.late\n",
        "attncore/late.py": "",
        "attncore/course/__init__.py": "",
        LOADER: "def load(name): return {}\n",
        "attncore/course/claims.toml": '[one]\npage = "book/a"\nrule = 1\n[two]\npage = "book/b"\nrule = 1\n',
        "book/data/x.json": "{}",
        "book/helper.py": "import attncore.other\n",
        "requirements.txt": "some==1\n",
        "_toc.yml": "format: jb-book\nroot: book/index\nchapters:\n- file: book/a\n- file: book/b\n",
        "book/index.md": "# Index\n",
        "book/a.md": notebook("A", "from attncore.svm import solve\nsolve()"),
        "book/b.md": notebook("B", "import attncore.other as o", "o.f()"),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf8")
    return tmp_path


def change(path, old="", new="\n"):
    """Replace `old`, or append; the time stamp moves on by a second."""
    text = path.read_text("utf8")
    path.write_text(text.replace(old, new) if old else text + new, "utf8")
    stamp = path.stat().st_mtime + 1
    os.utime(path, (stamp, stamp))


def reached(root, code):
    (root / "book" / "c.md").write_text(notebook("C", *code), "utf8")
    page = page_source.read_page(root / "book" / "c.md")
    trees = [(page_source.parse_cell(cell, "c"), "c") for cell in page.cells]
    files = import_closure.reached_files(root, root / "book", trees)
    return {path.relative_to(root).as_posix() for path in files}


SVM = {"attncore/__init__.py", "attncore/svm/__init__.py", "attncore/svm/solve.py", "attncore/shared.py"}
OTHER = {"attncore/__init__.py", "attncore/other.py", "attncore/late.py"}
STORED = "book/data/x.json"
DATA = {"attncore/__init__.py", "attncore/course/__init__.py", LOADER}


@pytest.mark.parametrize(
    ("code", "files"),
    [
        (["from attncore.svm import x"], SVM),
        (["import attncore.svm as s"], SVM),
        (["import attncore.svm.solve"], SVM),
        (["from attncore import svm"], SVM),
        (["import numpy", "def f():\n    from attncore.svm.solve import solve"], SVM),
        (["%matplotlib inline\nimport numpy as np", "%time import attncore.other"], OTHER),
        (["%%time\nfrom attncore import other"], OTHER),
        (["from helper import x"], OTHER | {"book/helper.py"}),
        (["import importlib", "importlib.import_module('attncore.other')"], OTHER),
        (["from attncore.course import data_files\ndata_files.load('x.json')"], DATA | {STORED}),
        (["from attncore.course.data_files import load as get", "get('x.json')"], DATA | {STORED}),
        (["import attncore.course.data_files as d\nd.load('x.json')"], DATA | {STORED}),
        (["import numpy as np\nnp.eye(2)"], set()),
    ],
)  # fmt: skip
def test_closure_reaches(tree, code, files):
    found = reached(tree, code)
    assert found == files


def test_closure_follows_data_read_by_a_module(tree):
    reads = "from attncore.course import data_files\nX = data_files.load('x.json')\n"
    change(tree / "attncore/late.py", new=reads)
    assert reached(tree, ["import attncore.other"]) == OTHER | DATA | {"book/data/x.json"}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("from attncore.course import data_files\nn = 'x'\ndata_files.load(n + '.json')", "computed name"),
        ("from attncore.course import data_files\ndata_files.load('none.json')", "none.json"),
        ("import importlib\nimportlib.import_module('attncore.' + 'svm')", "computed name"),
        ("from attncore.svm import *", "star import"),
        ("open('data/x.json').read()", "read data with"),
        ("import numpy as np\nnp.loadtxt('x.csv')", "read data with"),
        ("from pathlib import Path\nPath('x').read_text()", "read data with"),
        ("%run other.py", "%run"),
        ("%load_ext thing", "%load_ext"),
        ("%%bash\nls", "%%bash"),
        ("!ls", "!ls"),
        (":load: other.py\nx = 1", "'load'"),
    ],
)
def test_code_that_cannot_be_followed_is_refused(tree, code, message):
    (tree / "book/a.md").write_text(notebook("A", code), "utf8")
    with pytest.raises(ValueError, match=message):
        freshness.run_digest(tree, "book/a")


def digests(tree):
    pages = freshness.toc_pages(tree)
    return {p: (freshness.run_digest(tree, p), freshness.page_digest(tree, p, pages)) for p in pages}


@pytest.mark.parametrize(
    ("file", "old", "new", "runs", "pages"),
    [
        ("attncore/shared.py", "1", "2", {"book/a"}, {"book/a"}),
        ("attncore/late.py", "", "x = 1\n", {"book/b"}, {"book/b"}),
        ("attncore/__init__.py", "", "\n", {"book/a", "book/b"}, {"book/a", "book/b"}),
        ("requirements.txt", "1", "2", {"book/a", "book/b"}, {"book/a", "book/b"}),
        ("book/a.md", "prose", "words", set(), {"book/a"}),
        ("book/a.md", "solve()\n", "solve(); 1\n", {"book/a"}, {"book/a"}),
        ("book/a.md", "name: python3", "name: other", {"book/a"}, {"book/a"}),
        ("attncore/course/claims.toml", 'book/b"\nrule = 1', 'book/b"\nrule = 2', set(), {"book/b"}),
        ("book/index.md", "Index", "Start", set(), {"book/index"}),
    ],
)
def test_a_change_moves_just_these_digests(tree, file, old, new, runs, pages):
    before = digests(tree)
    change(tree / file, old, new)
    after = digests(tree)
    assert {page for page in after if after[page][0] != before[page][0]} == runs
    assert {page for page in after if after[page][1] != before[page][1]} == pages


def test_options_that_only_change_what_is_shown_do_not_execute(tree):
    cell = "---\nmystnb:\n  image:\n    alt: One alternative text.\ntags: [hide-input]\n---\nx = 1"
    (tree / "book/a.md").write_text(notebook("A", cell), "utf8")
    before = digests(tree)["book/a"]
    change(tree / "book/a.md", "One", "Another")
    caption = digests(tree)["book/a"]
    assert caption[0] == before[0] and caption[1] != before[1]
    change(tree / "book/a.md", "hide-input", "raises-exception")
    assert digests(tree)["book/a"][0] != before[0]


@pytest.mark.parametrize("shows", ["```{ledger}\n```", "```{status}\n```", "{ledger-count}`x` claims"])
def test_a_page_that_shows_the_whole_book_changes_with_any_page(tree, shows):
    change(tree / "book/index.md", new=shows + "\n")
    before = digests(tree)["book/index"][1]
    change(tree / "book/b.md", "prose", "words")
    assert digests(tree)["book/index"][1] != before


def cells_of(tmp_path, text):
    (tmp_path / "p.md").write_text(text, "utf8")
    return [cell.source for cell in page_source.read_page(tmp_path / "p.md").cells]


def test_cells_are_the_top_level_fences(tmp_path):
    text = NOTEBOOK + (
        "```{code-cell} ipython3\na = 1\n```\n"
        "~~~{code-cell}\n:tags: [x]\n\nb = '''\n```\n'''\n~~~\n"
        "````{code-cell} ipython3\n---\ntags: [x]\n---\nc = 1\n````\n"
        "````{note}\n```{code-cell}\nnested = 1\n```\n````\n"
        ":::{note}\n```{code-cell}\nnested = 1\n```\n:::\n"
        "```{exercise-start}\n:label: e\n```\n```{code-cell}\nd = 1\n```\n```{exercise-end}\n```\n"
        "```python\ne = 1\n```\n"
    )
    assert cells_of(tmp_path, text) == ["a = 1", "b = '''\n```\n'''", "c = 1", "d = 1"]


def test_cells_are_those_of_myst_nb(tmp_path, root):
    from myst_nb.core.read import read_myst_markdown_notebook
    from myst_parser.config.main import MdParserConfig

    config = MdParserConfig(enable_extensions={"colon_fence", "dollarmath", "amsmath", "attrs_block"})
    pages = [p for p in (root / "book").rglob("*.md") if page_source.read_page(p).cells]
    sample = tmp_path / "p.md"
    cells = ("a = 1\n\n\nb = 2", ":tags: [x]\n\nc = 1", "---\na: 1\n---\n\nd = 1")
    sample.write_text(notebook("T", *cells), "utf8")
    for path in [*pages, sample]:
        theirs = read_myst_markdown_notebook(path.read_text("utf8"), config=config, path=path).cells
        ours = [cell.source for cell in page_source.read_page(path).cells]
        assert ours == [cell.source.strip("\n") for cell in theirs if cell.cell_type == "code"], path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# T\n\n```{code-cell}\nx = 1\n```\n", "front matter"),
        (NOTEBOOK + ":::{code-cell}\nx = 1\n:::\n", "colons"),
        ("---\na: [\n---\n# T\n", "front matter"),
        ("---\na: 1\n# T\n", "not closed"),
    ],
)
def test_pages_that_are_no_notebooks_are_refused(tmp_path, text, message):
    with pytest.raises(page_source.SourceError, match=message):
        cells_of(tmp_path, text)


def site_of(tree):
    """A site as the driver leaves it, with nothing but the footers."""
    html = tree / "_build" / "html"
    for page, (_, digest) in digests(tree).items():
        (html / page).parent.mkdir(parents=True, exist_ok=True)
        (html / f"{page}.html").write_text(f'<p class="built-from" data-page-digest="{digest}">x</p>', "utf8")
    for name in ("index", "search", "genindex"):
        (html / f"{name}.html").write_text("x", "utf8")
    return html


def test_check_site_accepts_the_trees_site_and_names_what_is_not(tree):
    html = site_of(tree)
    assert freshness.check_site(tree, html) == []
    change(tree / "attncore/shared.py")
    (stale,) = freshness.check_site(tree, html)
    assert stale.startswith("book/a: built from")
    site_of(tree)
    (html / "book/b.html").write_text("no footer", "utf8")
    (html / "book/gone.html").write_text("x", "utf8")
    (html / "_sources/book").mkdir(parents=True)
    (html / "_sources/book/gone.md").write_text("x", "utf8")
    (html / "_images").mkdir()
    (html / "_images/gone.png").write_bytes(b"x")
    (html / "book/a.html").unlink()
    assert freshness.check_site(tree, html) == [
        "book/a: in the table of contents, not in the built site",
        "book/b: the built page carries no digest",
        "_sources/book/gone.md: no source makes this file",
        "book/gone.html: no source makes this file",
        "_images/gone.png: no source makes this file",
    ]


@pytest.mark.book
def test_the_built_site_is_the_trees(root, site):
    assert freshness.check_site(root, site) == []


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A built book: page a reaches one.py, b reaches two.py and data, c neither."""
    book = TrialBook(tmp_path_factory.mktemp("fresh") / "book")
    book.contents("book/index", "book/a", "book/b", "book/c")
    for name in ("attncore/__init__.py", "attncore/course/__init__.py"):
        book.write(name, "")
    book.write("attncore/one.py", "VALUE = 1\n")
    book.write("attncore/two.py", "VALUE = 2\n")
    loader = (books.ROOT / LOADER).read_text("utf8")
    book.write(LOADER, loader.replace("from attncore.validation import short", "short = repr"))
    provenance = '"provenance": {"command": "c", "seed": 0, "version": "0", "machine": "m"}'
    book.write("book/data/x.json", f'{{{provenance}, "x": 7}}')
    book.write("book/index.md", "# Index\n\nNo code.\n")
    book.write("book/a.md", notebook("A", "from attncore import one\nprint('one is', one.VALUE)"))
    reads = "from attncore.course import data_files\nprint('x is', data_files.load('x.json')['x'])"
    book.write("book/b.md", notebook("B", "from attncore.two import VALUE\nprint('two is', VALUE)", reads))
    book.write("book/c.md", notebook("C", "print('c')"))
    cold = book.build()
    assert cold.status == 0, cold.output
    assert cold.executed == {"book/a", "book/b", "book/c"}
    assert "x is 7" in book.page("book/b")
    return book


@pytest.mark.book
def test_only_pages_that_reach_a_change_execute(book):
    unchanged = book.build()
    assert (unchanged.status, unchanged.executed, unchanged.read) == (0, set(), set())
    book.edit("book/a.md", "Some prose.", "Other prose.")
    book.edit("attncore/two.py", "2", "22")
    book.edit("book/data/x.json", "7", "8")
    both = book.build()
    assert (both.status, both.executed) == (0, {"book/b"})
    assert both.read == {"book/a", "book/b"}
    assert "two is 22" in book.page("book/b") and "x is 8" in book.page("book/b")
    assert "Other prose." in book.page("book/a") and "one is 1" in book.page("book/a")
    assert set(book.records()) == {"book/a", "book/b", "book/c"}  # and each has one run only


@pytest.mark.book
def test_the_footer_tells_of_the_run_not_of_the_build(book):
    (run,) = (book.store / "book/c").glob("*/run.json")
    record = run.read_text("utf8").replace(book.records()["book/c"]["executed"][:10], "2001-02-03")
    run.write_text(record, "utf8")
    book.edit("book/c.md", "Some prose.", "Later prose.")
    assert (built := book.build()).status == 0, built.output
    assert built.executed == set()
    page = book.page("book/c")
    assert '<time datetime="2001-02-03' in page and ">2001-02-03</time>" in page
    versions = freshness.library_versions()
    assert f"Python {versions['python']}" in page and f"NumPy {versions['numpy']}" in page
    digest = freshness.page_digest(book.root, "book/c", freshness.toc_pages(book.root))
    assert f'data-page-digest="{digest}"' in page and f"<code>{digest}</code>" in page


@pytest.mark.book
def test_a_page_taken_out_leaves_nothing_behind(book):
    book.contents("book/index", "book/a", "book/b")
    built = book.build()
    assert built.status == 0, built.output
    assert "book/c.html" in built.steps["removed"]
    assert not (book.html / "book/c.html").exists() and not (book.html / "_sources/book/c.md").exists()
    assert set(book.records()) == {"book/a", "book/b"}


SCRATCH = "import tempfile\nwith tempfile.TemporaryDirectory() as own:\n    np.savetxt(f'{own}/a', x)\n"


@pytest.mark.parametrize("line, allowed", [
    ("    np.loadtxt(f'{own}/a')", True),
    ("    np.loadtxt('other.csv')", False),
    ("np.loadtxt(f'{own}/a')", False),
])
def test_a_cell_may_read_what_it_wrote_itself(line, allowed):
    tree = ast.parse(SCRATCH + line)
    if allowed:
        import_closure.refuse_readers(tree, "here")
    else:
        with pytest.raises(import_closure.ClosureError, match="read data with"):
            import_closure.refuse_readers(tree, "here")
