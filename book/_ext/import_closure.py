"""The files that Python code reaches: modules of this repository by import, data by ``data_files.load``.

All of it is static: nothing is imported or run. What a static reading cannot follow (a data file whose name
is computed, a module imported by a computed name) is refused, so that a digest over these files is
complete.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

LOADER = "attncore.course.data_files"
DATA = Path("book/data")
DYNAMIC = {"import_module", "__import__"}
READERS = {
    "open",
    "read_text",
    "read_bytes",
    "fromfile",
    "loadtxt",
    "genfromtxt",
    "read_csv",
    "np.load",
    "torch.load",
}


class ClosureError(ValueError):
    """Code whose files cannot be told from its text."""


def reached_files(root: Path, folder: Path, trees: Iterable[tuple[ast.Module, str]]) -> set[Path]:
    """Files of the repository that running ``trees`` in ``folder`` reads.

    Parameters
    ----------
    root, folder : Path
        The repository, and the folder the code runs in; modules are looked for in ``folder`` first.
    trees : iterable of (ast.Module, str)
        Parsed code, and how to call it in a message.

    Returns
    -------
    set of Path
        Modules (the packages above each, too) and data files. Installed libraries are no part of it.
    """
    files: dict[str, Path] = {}
    data: set[Path] = set()
    todo: list[str] = []
    trees = list(trees)
    together = ast.Module([node for tree, _ in trees for node in tree.body], [])  # cells share their names
    loader = _loader_names(together, "")
    for tree, where in trees:
        names, literals = _reads(tree, "", where, loader)
        todo += names
        data |= {root / DATA / name for name in literals}
    while todo:
        parts = todo.pop().split(".")
        for depth in range(1, len(parts) + 1):  # importing a.b.c runs a and a.b first
            name = ".".join(parts[:depth])
            path = files.get(name) or _module_file((folder, root), name)
            if path is None:
                break
            if name in files:
                continue
            files[name] = path
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            names, literals = _module_reads(path, package, path.stat().st_mtime_ns)
            todo += names
            data |= {root / DATA / literal for literal in literals}
    missing = sorted(f.name for f in data if not f.is_file())
    if missing:
        raise ClosureError(f"data files that {DATA.as_posix()}/ does not hold: {', '.join(missing)}")
    return set(files.values()) | data


def refuse_readers(tree: ast.AST, where: str) -> None:
    """Refuse a cell that reads a file other than through the data loader, which would escape the digest.

    A file in a ``with tempfile.TemporaryDirectory() as folder:`` was written by the cell itself, from what the
    digest covers: a reader there whose arguments name ``folder`` is let pass.
    """
    own = {id(call) for block in ast.walk(tree) if isinstance(block, ast.With) for call in _scratch_calls(block)}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        target = ast.unparse(call.func)
        if id(call) in own:
            continue
        if target in READERS or target.rpartition(".")[2] in READERS:
            raise ClosureError(f"{where}, line {call.lineno}: read data with {LOADER}.load, not {target}()")


def _scratch_calls(block: ast.With) -> Iterator[ast.Call]:
    """Calls in a ``with`` block whose first argument names the temporary directory that the block opens."""
    scratch = {
        item.optional_vars.id
        for item in block.items
        if ast.unparse(item.context_expr) == "tempfile.TemporaryDirectory()"
        and isinstance(item.optional_vars, ast.Name)
    }
    for call in (node for node in ast.walk(block) if isinstance(node, ast.Call) and node.args):
        if any(isinstance(name, ast.Name) and name.id in scratch for name in ast.walk(call.args[0])):
            yield call


def _module_file(folders: Iterable[Path], name: str) -> Path | None:
    for folder in folders:
        base = folder.joinpath(*name.split("."))
        for path in (base / "__init__.py", base.with_name(base.name + ".py")):
            if path.is_file():
                return path
    return None


@cache
def _module_reads(path: Path, package: str, _mtime: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    tree = ast.parse(path.read_bytes(), str(path))
    return _reads(tree, package, path.name, _loader_names(tree, package))


def _reads(
    tree: ast.AST, package: str, where: str, loader: tuple[set[str], set[str]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the modules a syntax tree imports, and of the data files it loads by the names of ``loader``."""
    modules = list(_imports(tree, package, where))
    loader_modules, loader_functions = loader
    literals = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        target = ast.unparse(call.func)
        if target.rpartition(".")[2] in DYNAMIC:
            modules.append(_literal(call, where, "a module imported by a computed name"))
        elif target in loader_functions or target.removesuffix(".load") in loader_modules - {target}:
            literals.append(_literal(call, where, "a data file with a computed name"))
    return tuple(modules), tuple(literals)


def _imports(tree: ast.AST, package: str, where: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            if any(alias.name == "*" for alias in node.names) and base.split(".")[0] == "attncore":
                raise ClosureError(f"{where}, line {node.lineno}: a star import hides what is used")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    return ".".join(parts[: len(parts) - node.level + 1] + ([node.module] if node.module else []))


def _loader_names(tree: ast.AST, package: str) -> tuple[set[str], set[str]]:
    """The names under which a tree knows the data loader's module, and its function ``load``."""
    modules, functions = {LOADER}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.name == LOADER and alias.asname}
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            for alias in node.names:
                if f"{base}.{alias.name}" == LOADER:
                    modules.add(alias.asname or alias.name)
                elif base == LOADER and alias.name == "load":
                    functions.add(alias.asname or alias.name)
    return modules, functions


def _literal(call: ast.Call, where: str, what: str) -> str:
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    raise ClosureError(f"{where}, line {call.lineno}: {what} cannot be followed: {ast.unparse(call)}")
