"""Build the whole book into ``_build/html``; fail on anything that is not as it should be, every time.

Runs the pages whose code changed, two kernels at a time, then has Sphinx read and write what changed. The
build is red (exit status 1) on any Sphinx warning, failing cell, missing page, stale or left-over page, or
remote asset, and stays red when run again without a mend: after a build that was not clean, every page is
read anew (outputs stay cached). Exit status 2: bad arguments, a BOOK_REPOSITORY that is no address, or
another build is running; 130: interrupted.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import hashlib
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
REDIRECT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta http-equiv="refresh" content="0; url={page}">
<link rel="canonical" href="{page}">
<link rel="icon" href="data:,">
</head>
<body><main><h1>{title}</h1><p><a href="{page}">Open the book</a></p></main></body>
</html>
"""


class Refused(Exception):
    """The build cannot begin; the message says why and what to do."""


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--root", type=Path, default=HERE, help="the repository (default: the one of this file)"
    )
    parser.add_argument("--build-dir", type=Path, help="where to build (default: ROOT/_build)")
    parser.add_argument(
        "--toc", type=Path, help="another table of contents, for drafts (default: ROOT/_toc.yml)"
    )
    parser.add_argument(
        "--jobs", type=int, default=int(os.environ.get("BOOK_JOBS", "2")), help="kernels at a time"
    )
    parser.add_argument("--rerun", nargs="*", metavar="PAGE", help="run these pages again (none named: all)")
    found = parser.parse_args(argv)
    if found.jobs < 1:
        parser.error(f"--jobs is {found.jobs}; expected at least 1")
    found.root = found.root.resolve()
    found.build_dir = (found.build_dir or found.root / "_build").resolve()
    found.toc = (found.toc or found.root / "_toc.yml").resolve()
    return found


@contextmanager
def sole_build(build_dir: Path) -> Iterator[None]:
    """Hold the lock of the build folder; the system lets go of it when its holder ends, however it ends."""
    build_dir.mkdir(parents=True, exist_ok=True)
    with (build_dir / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise Refused(f"another build is running in {build_dir} ({holder}); wait for it to end") from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()}, since {datetime.now():%H:%M:%S}")
        lock.flush()
        yield


def frame_digest(root: Path, toc: Path) -> str:
    """Digest of what decides how every page is read: configuration, contents, extensions, versions."""
    from freshness import LOCKS
    from import_closure import reached_files

    extensions = sorted((root / "book" / "_ext").glob("*.py"))
    trees = [(ast.parse(path.read_bytes()), path.name) for path in extensions]
    trees.append((ast.parse("import attncore.course.mime"), "renderer"))
    files = {*extensions, *reached_files(root, root / "book" / "_ext", trees), root / "_config.yml", toc}
    files |= {Path(__file__), *(root / lock for lock in LOCKS)}
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(files):
        if path.is_file():
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def check_address(root: Path) -> None:
    """Refuse an address that would make dead buttons before anything is spent on the build."""
    import repository

    try:
        repository.address(root)
    except ValueError as reason:
        raise Refused(str(reason)) from None


def missing_pages(root: Path, pages: list[str]) -> list[str]:
    lines = [f"{page}: in the table of contents, but there is no {page}.md" for page in pages]
    return [line for page, line in zip(pages, lines, strict=True) if not (root / f"{page}.md").is_file()]


def run_sphinx(args: argparse.Namespace, trees: Path) -> bool:
    """Execute, read and write what changed; True when Sphinx had nothing to complain of."""
    from jupyter_book.sphinx import build_sphinx

    overrides = {
        "external_toc_path": args.toc.as_posix(),
        "latex_individualpages": False,
        "nitpicky": True,
        "execution_jobs": args.jobs,
    }
    try:
        result = build_sphinx(
            args.root,
            args.build_dir / "html",
            noconfig=True,
            path_config=args.root / "_config.yml",
            doctreedir=str(trees),
            confoverrides=overrides,
            warningiserror=True,
            keep_going=True,
            quiet=True,
        )
    finally:
        for reader in multiprocessing.active_children():  # after a crash they would wait for ever to be heard
            reader.terminate()
    if isinstance(result, KeyboardInterrupt):
        raise result
    return result == 0


def write_redirect(html: Path, first: str, title: str) -> None:
    (html / "index.html").write_text(REDIRECT.format(page=f"{first}.html", title=title), "utf8")


def remove_leftovers(html: Path, pages: list[str]) -> None:
    from freshness import leftovers

    for name in leftovers(html, pages):
        print(f"  removed   {name}: no source makes it any more", flush=True)
        (html / name).unlink()


def build(args: argparse.Namespace) -> list[str]:
    """Build the book and return what is wrong with it, an empty list when nothing is."""
    check_address(args.root)
    import freshness

    pages = freshness.toc_pages(args.root, args.toc)
    print(f"  loading   Sphinx and its extensions, for a book of {len(pages)} pages", flush=True)
    import offline
    import run_store
    import yaml

    html, trees, stamp = args.build_dir / "html", args.build_dir / ".doctrees", args.build_dir / ".clean"
    frame = frame_digest(args.root, args.toc)
    if not stamp.is_file() or stamp.read_text() != frame:
        shutil.rmtree(trees, ignore_errors=True)  # so that every warning is given again
    stamp.unlink(missing_ok=True)
    for page in args.rerun if args.rerun else pages if args.rerun == [] else ():
        if page not in pages:
            raise Refused(f"--rerun names {page!r}, which is not in {args.toc.name}")
        run_store.forget(args.build_dir / ".jupyter_cache", page)
    problems = missing_pages(args.root, pages)
    if not run_sphinx(args, trees):
        problems.append("Sphinx warned, or a cell failed: see above")
    if not html.is_dir():
        return problems
    write_redirect(html, pages[0], yaml.safe_load((args.root / "_config.yml").read_text("utf8"))["title"])
    remove_leftovers(html, pages)
    present = [page for page in pages if (args.root / f"{page}.md").is_file()]
    problems += freshness.check_site(args.root, html, args.toc) if present == pages else []
    problems += offline.check_site(html)
    if not problems:
        stamp.write_text(frame)
    return problems


def interrupt(signum, frame) -> None:
    raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    sys.path.insert(0, str(args.root / "book" / "_ext"))
    signal.signal(signal.SIGTERM, interrupt)
    begin = time.perf_counter()
    try:
        with sole_build(args.build_dir):
            problems = build(args)
    except Refused as reason:
        print(f"build_book: {reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("build_book: interrupted; the next build begins where this one stopped", file=sys.stderr)
        return 130
    seconds = time.perf_counter() - begin
    for line in problems:
        print(f"RED  {line}", file=sys.stderr)
    if problems:
        print(f"The book is not in order ({len(problems)} found, {seconds:.1f} s).", file=sys.stderr)
        return 1
    built = sum(1 for _ in (args.build_dir / "html").rglob("*.html"))
    print(f"The book is in order: {built} pages of HTML, {seconds:.1f} s.")
    print(args.build_dir / "html" / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
