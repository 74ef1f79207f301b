"""Refuse records whose numbers were typed instead of measured. Reads page sources; needs neither Sphinx nor a kernel.

Refused in code cells: a measured value or interval made of numeric literals only (also through names, arithmetic,
``float("...")`` or ``dict(corr=0.99)``), an id that is no string literal, a record whose output the cell hides,
and a record made without ``ledger.record``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from page_source import Cell, SourceError, parse_cell, read_page

MODULE = "attncore.course.ledger"
HIDING = {"remove-output", "remove-cell", "hide-output", "hide-cell", "remove_output", "remove_cell"}
CASTS = {"float", "int", "abs", "round", "min", "max", "sum", "complex", "dict", "list", "tuple"}

LIBRARIES = {"np", "numpy", "torch", "math", "statistics", "operator", "decimal", "fractions"}


def lint_page(path: Path) -> list[tuple[int, str]]:
    """Return (line, message) for every record on the page at `path` that could not be a measurement."""
    try:
        page = read_page(path)
        trees = [(cell, parse_cell(cell, path.name)) for cell in page.cells]
    except SourceError as error:
        return [(1, str(error))]
    parsed = [(cell, tree, _first_line(path, cell)) for cell, tree in trees if tree is not None]
    values = _bindings([tree for _, tree, _ in parsed])
    modules, functions = _ledger_names([tree for _, tree, _ in parsed])
    found = []
    for cell, tree, start in parsed:
        for node, message in _cell_faults(cell, tree, modules, functions, values):
            found.append((start + node.lineno - 1, message))
    return sorted(found)


def _first_line(path: Path, cell: Cell) -> int:
    """The line of the page on which the code of a cell starts, after its options and blank lines."""
    lines = path.read_text("utf8").splitlines()
    first = cell.source.splitlines()[0]
    return next(i for i, line in enumerate(lines[cell.line :], cell.line + 1) if line == first)


def _cell_faults(cell, tree, modules, functions, values) -> Iterator[tuple[ast.AST, str]]:
    calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "attncore.claim+json" in node.value:
            yield node, "a record is made by ledger.record, not by writing its MIME bundle"
        elif _is_record(node, modules, functions) and id(node) not in calls:
            yield node, "call ledger.record directly: under another name the lint could not read its values"
        elif _names(node, modules, "Record") or (isinstance(node, ast.alias) and node.name == "Record"):
            yield node, "a record is made by ledger.record, not by building a Record"
        elif isinstance(node, ast.Call) and _is_record(node.func, modules, functions):
            yield from _call_faults(node, values)
            if hiding := HIDING & set(cell.tags):
                yield node, f"the tag {sorted(hiding)[0]!r} hides the record; move it to a cell that shows its output"


def _call_faults(call: ast.Call, values) -> Iterator[tuple[ast.AST, str]]:
    arguments = dict(zip(("id", "measured"), call.args, strict=False))
    for keyword in call.keywords:
        spread = [("", None)] if keyword.arg is None else [(keyword.arg, keyword.value)]
        if isinstance(keyword.value, ast.Name | ast.Dict | ast.Call) and keyword.arg is None:
            spread = [(key.strip("'"), value) for key, value in _items(keyword.value, values)] or spread
        arguments |= spread
    if "" in arguments or any(isinstance(arg, ast.Starred) for arg in call.args):
        yield call, "the arguments of ledger.record must stand in the page: no * and no ** of something computed"
        return
    name = arguments.get("id")
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
        yield call, "the id of a record must be a string literal, so that its page can be told from its source"
    if "measured" in arguments:
        for key, value in _items(arguments["measured"], values):
            if _typed(value, values):
                yield value, f"measured value {key} is typed, not measured: {ast.unparse(value)}"
    if "interval" in arguments and not _is_none(arguments["interval"]):
        for key, value in _items(arguments["interval"], values):
            if _typed(value, values):
                yield value, f"interval {key} is typed, not measured: {ast.unparse(value)}"


def _items(node: ast.AST, values, seen=frozenset()) -> Iterator[tuple[str, ast.AST]]:
    """The values of a mapping as the page writes it: a dict display, ``dict(...)``, ``a | b`` or a name for one."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:  # {**other}
                yield from _items(value, values, seen)
            else:
                yield ast.unparse(key), value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        for argument in node.args:
            yield from _items(argument, values, seen)
        for keyword in node.keywords:
            if keyword.arg is None:
                yield from _items(keyword.value, values, seen)
            else:
                yield repr(keyword.arg), keyword.value
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _items(node.left, values, seen)
        yield from _items(node.right, values, seen)
    elif isinstance(node, ast.DictComp):
        yield ast.unparse(node.key), node.value
    elif isinstance(node, ast.List | ast.Tuple):
        for i, part in enumerate(node.elts, 1):
            pair = isinstance(part, ast.List | ast.Tuple) and len(part.elts) == 2
            yield (ast.unparse(part.elts[0]), part.elts[1]) if pair else (f"end {i}", part)
    elif isinstance(node, ast.Name) and node.id not in seen:
        for bound in values.get(node.id, ()):
            if bound is not None:
                yield from _items(bound, values, seen | {node.id})


def _typed(node: ast.AST, values, seen=frozenset()) -> bool:
    """Whether a value is made of literals only, so that no run can change it."""
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, str) or _reads_as_number(node.value)
    if isinstance(node, ast.Name):
        bound = values.get(node.id)
        if not bound or node.id in seen:
            return False
        return all(b is not None and _typed(b, values, seen | {node.id}) for b in bound)
    if isinstance(node, ast.Call):
        last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute) and not _is_library(node.func.value):
            arguments.append(node.func.value)  # (0.99).real, and methods of what a literal makes
        known = last in CASTS or isinstance(node.func, ast.Attribute)
        return known and bool(arguments) and all(_typed(a, values, seen) for a in arguments)
    if isinstance(node, ast.UnaryOp | ast.BinOp | ast.BoolOp | ast.Compare | ast.IfExp | ast.Tuple | ast.List
                  | ast.Dict | ast.Subscript | ast.Attribute | ast.JoinedStr | ast.NamedExpr | ast.Slice):
        parts = [child for child in ast.iter_child_nodes(node)
                 if isinstance(child, ast.expr) and not (isinstance(node, ast.NamedExpr) and child is node.target)]
        return bool(parts) and all(_typed(child, values, seen) or _is_key(node, child) for child in parts)
    return False


def _is_key(node: ast.AST, child: ast.AST) -> bool:
    """A key says where a number is looked up, not what it is."""
    if isinstance(node, ast.Subscript):
        return child is node.slice
    return isinstance(node, ast.Dict) and child in node.keys


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_library(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in LIBRARIES


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _bindings(trees: list[ast.Module]) -> dict[str, list[ast.AST | None]]:
    """Everything each name of the page is bound to; None for what is no plain assignment of one expression."""
    values: dict[str, list[ast.AST | None]] = {}
    plain = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name, value in _pairs(target, node.value):
                    values.setdefault(name.id, []).append(value)
                    plain.add(id(name))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            values.setdefault(node.name, []).append(None)
        elif isinstance(node, ast.alias):
            values.setdefault(node.asname or node.name.split(".")[0], []).append(None)
        elif isinstance(node, ast.arg):
            values.setdefault(node.arg, []).append(None)
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in plain:
            values.setdefault(node.id, []).append(None)
    return values


def _pairs(target: ast.AST, value: ast.AST) -> Iterator[tuple[ast.Name, ast.AST]]:
    if isinstance(target, ast.Name):
        yield target, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        if len(target.elts) == len(value.elts):
            for one, part in zip(target.elts, value.elts, strict=True):
                yield from _pairs(one, part)


def _ledger_names(trees: list[ast.Module]) -> tuple[set[str], set[str]]:
    """Names under which the page knows the ledger module, and its function ``record``."""
    modules, functions = {MODULE}, set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.name == MODULE and alias.asname}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full == MODULE:
                    modules.add(alias.asname or alias.name)
                elif full == f"{MODULE}.record":
                    functions.add(alias.asname or alias.name)
    return modules, functions


def _is_record(node: ast.AST, modules: set[str], functions: set[str]) -> bool:
    return _names(node, modules, "record") or (
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in functions)


def _names(node: ast.AST, modules: set[str], attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute and ast.unparse(node.value) in modules
