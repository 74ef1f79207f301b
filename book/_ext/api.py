"""The directives ``api`` and ``messages``: public names of the package, with what the package says of them.

``{api} attncore.svm`` shows the module's docstring and every name in its ``__all__``; names after the module
take the place of ``__all__``. ``{messages} attncore.svm.Status`` is a table of an enumeration's messages.
Docstrings are NumPy style with formulas in plain text, so what reStructuredText would take for markup
(``|W|``, ``x_``) is escaped before napoleon reads them. The page's digest covers the package (see
``freshness.SHOWN``).
"""

from __future__ import annotations

import inspect
import re
from enum import Enum
from pathlib import Path
from pkgutil import resolve_name

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attncore.course.mime import text_table

LITERAL = re.compile(r"(``.+?``|:[a-z:]+:`[^`]+`|`[^`]+`_{0,2})", re.S)
UNDERLINE = re.compile(r"-{3,}")
TYPED = re.compile(r"(\*\*[^*]+\*\*) \(\*(.+)\*\)(?= --|$)")
VERBATIM = re.compile(r"\s*\.\.\s")


class ApiDirective(SphinxDirective):
    """``{api} module [name ...]``."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        name, *members = self.arguments[0].split()
        try:
            module = resolve_name(name)
        except ImportError as error:
            raise self.error(f"api: there is no module {name!r} to import ({error})") from None
        source, root = Path(module.__file__).resolve(), Path(self.env.app.confdir).resolve()
        if not source.is_relative_to(root):  # the page's digest would be that of other files
            raise self.error(f"api: {name} comes from {source}, not from this tree: pip install -e .")
        lines = ["````{eval-rst}", f".. automodule:: {name}", ""]
        for member in members or public_names(module):
            lines += directive(module, member)
        section = nodes.container(classes=["api"])
        self.state.nested_parse(StringList([*lines, "````"], self.get_source_info()[0]), self.content_offset, section)
        return [section]


class MessagesDirective(SphinxDirective):
    """``{messages} path.of.Enumeration``: name, number and message of each member."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        rows = [(member.name, str(int(member)), member.message) for member in resolve_name(self.arguments[0])]
        return [text_table(("Status", "Number", "What it means"), rows, "messages")]


def public_names(module) -> list[str]:
    """The names in ``__all__``; ValueError where a module has none, since then nothing says what is public."""
    names = getattr(module, "__all__", None)
    if not names:
        raise ValueError(f"{module.__name__} must have __all__ to be shown, got {names!r}")
    return list(names)


def directive(module, member: str) -> list[str]:
    """The autodoc directive for one name, functions and classes told apart."""
    thing, path = getattr(module, member), f"{module.__name__}.{member}"
    if isinstance(thing, type):
        options = ["   :members:", "   :member-order: bysource"]
        if issubclass(thing, Enum):
            options.append("   :undoc-members:")
        return [f".. autoclass:: {path}", *options, ""]
    return [f".. {'autofunction' if inspect.isroutine(thing) else 'autodata'}:: {path}", ""]


def escape_formulas(app, what, name, thing, options, lines: list[str]) -> None:
    """Escape what reads as a formula, leave literals, directives and examples alone; single backticks are code."""
    if what == "data" and lines and lines[0] == (type(thing).__doc__ or "").partition("\n")[0]:
        lines.clear()  # the words of a built-in type about itself
    done, block, example = [], None, False  # block: lines indented more than this are verbatim
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip() and block is not None and indent <= block:
            block = None
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        verbatim = example or block is not None or VERBATIM.match(line)
        if block is None and not example and (verbatim or line.endswith("::")):
            block = indent
        if what == "module" and UNDERLINE.fullmatch(line) and done and done[-1]:
            done[-1:] = [f".. rubric:: {done[-1]}", ""]  # a heading of its own would not fit among the page's
        else:
            done.append(line if verbatim else escaped(line))
    # Napoleon takes what stands before a colon in the first line of a property for its type: give it a comment.
    lines[:] = ["..", "", *done] if what in ("property", "attribute", "data") else done


def escaped(line: str) -> str:
    """One line with formulas escaped outside literals, and ``name`` in place of `name`."""
    parts = LITERAL.split(line)
    for at, part in enumerate(parts):
        if at % 2 and part.startswith("`") and not part.startswith("``") and not part.endswith("_"):
            parts[at] = f"`{part}`"
        elif not at % 2:
            parts[at] = re.sub(r"(?<!\\)([|])|(?<=\w)(_)(?=\W|$)|(?<=\w)(\*)(?=\w)", r"\\\1\2\3", part)
    return "".join(parts)


def plain_types(app, what, name, thing, options, lines: list[str]) -> None:
    """``X : (..., n, d)``, the type as code, in place of napoleon's ``X (*(..., n, d)*)``."""
    lines[:] = [TYPED.sub(r"\1 : ``\2``", line) for line in lines]


def plain_signature(app, what, name, thing, options, signature, returns):
    """An enumeration has members; the signature of its constructor says nothing."""
    return ("", returns) if isinstance(thing, type) and issubclass(thing, Enum) else None


def skip_aliases(app, what, name, member, skip, options) -> bool | None:
    """Leave out the fields of named tuples, of which Python itself says only which number they have."""
    return True if (getattr(member, "__doc__", None) or "").startswith("Alias for field number") else None


def shorten_names(app: Sphinx, doctree: nodes.document) -> None:
    """Let headings of objects be read without the module, which the section above names."""
    for place in doctree.findall(lambda node: isinstance(node, nodes.container) and "api" in node["classes"]):
        for signature in place.findall(lambda node: node.tagname == "desc_signature"):
            for prefix in list(signature.findall(lambda node: node.tagname == "desc_addname")):
                prefix.parent.remove(prefix)


def setup(app: Sphinx) -> dict:
    for extension in ("sphinx.ext.autodoc", "sphinx.ext.napoleon"):
        app.setup_extension(extension)
    app.add_directive("api", ApiDirective)
    app.add_directive("messages", MessagesDirective)
    app.connect("autodoc-process-docstring", escape_formulas, priority=400)
    app.connect("autodoc-process-docstring", plain_types, priority=600)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("autodoc-skip-member", skip_aliases)
    app.connect("doctree-read", shorten_names)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
