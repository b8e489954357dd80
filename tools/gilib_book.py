"""The book's Sphinx extension: execution cache by library, offline link inventories, API pages by room."""

import gc
import importlib
import inspect
import re
import shutil
import sys
from abc import ABC
from collections import namedtuple
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.ext import autodoc
from sphinx.util.docutils import SphinxDirective
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle

import book_key
import book_pages
import derivations
import docstrings
import inventories


def _round() -> BracketStyle:
    return BracketStyle(left="(", right=")")


@dataclass
class RoundBrackets(AuthorYearReferenceStyle):
    """Citations as "Ober and Aitchison (2021)" and "(Ober and Aitchison, 2021)"."""

    bracket_parenthetical: BracketStyle = field(default_factory=_round)
    bracket_textual: BracketStyle = field(default_factory=_round)


def configure(app: Sphinx, config: Config) -> None:
    """Choose the present library's cache folder, drop the oldest, link to inventories and a repository."""
    root = Path(app.srcdir)
    if address := book_pages.repository():
        buttons = ("use_repository_button", "use_issues_button", "use_edit_page_button")
        config.html_theme_options |= {"repository_url": address} | dict.fromkeys(buttons, True)
    cache = book_key.cache_folder(root)
    cache.mkdir(parents=True, exist_ok=True)
    cache.touch()
    caches = sorted(cache.parent.glob(".jupyter_cache-*"), key=lambda folder: folder.stat().st_mtime)
    for old in caches[: -book_key.KEPT_CACHES]:
        shutil.rmtree(old)
    config.nb_execution_cache_path = str(cache)
    config.intersphinx_mapping = inventories.write(
        root / "book" / "inventories" / "names.txt", root / "_build" / "inventories"
    )


PACKAGES = ("gilib", "experiments")
BELOW = tuple(f"{package}." for package in PACKAGES)
BY_NAME = (
    "gilib.baselines",
    "gilib.sklearn",
    "experiments",
    "experiments.examples",
    "experiments.images",
    "experiments.labelled",
    "experiments.plots",
    "experiments.sliders",
    "experiments.tables",
)  # rooms that `import gilib` does not open
FIELD = type(vars(namedtuple("Point", "x"))["x"])  # what a named tuple has in a field's place


ALIAS = re.compile(r"(?:(?<=[:|,] )|(?<=\[))(?:~?gilib\.arguments\.)?([A-Z]\w+)(?=[ ,)\]])")
CHECKED = re.compile(r"~?(?:\w+\.)?Annotated\[((?:[^][,]|\[[^]]*\])+), [^]]*\]")
MODULE = re.compile(r"<class 'torch\.nn\.[\w.]*?(\w+)'>")


def rooms(package: ModuleType) -> dict[str, tuple[ModuleType, list[str]]]:
    """Modules right below the package, and those of BY_NAME; of each ``__all__``, or what it defines."""
    below = [value for value in vars(package).values() if inspect.ismodule(value)]
    found = {}
    for module in dict.fromkeys([*below, *map(importlib.import_module, BY_NAME)]):
        room = module.__name__.rpartition(".")[2]
        names = getattr(module, "__all__", None)
        if names is None and (room in package.__all__ or module.__name__ in BY_NAME):
            defined = [key for key, value in vars(module).items() if _made_in(value, module)]
            names = [key for key in defined if not key.startswith("_")]
        if names:
            found[room] = (module, names)
    return found


def _made_in(value: Any, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__ and hasattr(value, "__qualname__")


def public_names(package: ModuleType) -> dict[str, tuple[str, Any]]:
    """Every public name once: ``{documented name: (room, object)}``."""
    found: dict[str, tuple[str, Any]] = {}
    for name in package.__all__:
        value = getattr(package, name)
        if not inspect.ismodule(value) and not name.startswith("__"):
            room = getattr(value, "__module__", package.__name__).removeprefix(package.__name__ + ".")
            found[f"{package.__name__}.{name}"] = (room.split(".")[0], value)
    known = {id(value) for _, value in found.values()}
    for room, (module, names) in rooms(package).items():
        for name in names:
            value = getattr(module, name)
            if id(value) not in known and not inspect.ismodule(value):
                found[f"{module.__name__}.{name}"] = (room, value)
    return found


def tidy_docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Before napoleon reads the sections. A type variable has no words of its own, but Python's."""
    if isinstance(value, TypeVar) and isinstance(value.__bound__, type):
        lines[:] = [f"A type variable for {value.__bound__.__name__} and the classes below it."]
    lines[:] = docstrings.tidy(lines)


def plain_signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """``int`` where an annotation checks it, a default as one writes it; nothing of torch's constructors."""
    if what == "class" and (signature or "").startswith("(*args"):
        return "", None
    plain = ALIAS.sub(lambda found: checked_types().get(found[1], found[0]), signature or "")
    plain = MODULE.sub(r"nn.\1", CHECKED.sub(r"\1", plain))
    for made in fields(value) if what == "class" and is_dataclass(value) else ():
        if made.init and (make := made.default_factory) is not MISSING:
            called = f"{make.__name__}()" if inspect.isclass(make) else repr(make())
            plain = plain.replace("<factory>", called, 1)
    return signature and plain, returns


@cache
def checked_types() -> dict[str, str]:
    """What an alias of an annotation that checks stands for: `Count` is `int`."""
    names = vars(importlib.import_module("gilib.arguments")).items()
    kinds = {name: get_args(value)[0] for name, value in names if get_origin(value) is Annotated}
    return {
        name: kind.__name__ if kind.__module__ == "builtins" else f"~{kind.__module__}.{kind.__name__}"
        for name, kind in kinds.items()
    }


def leave_out_foreign(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what others write into our classes: scikit-learn's methods, "Alias for field number 0"."""
    foreign = str(getattr(value, "__module__", "")).startswith("sklearn.") or type(value) is FIELD
    return True if foreign else None


@cache
def public_classes() -> set[type]:
    """The classes that pages document."""
    return {value for _, value in public_names(gilib()).values() if inspect.isclass(value)}


def hidden(kind: type) -> bool:
    """Whether a class is ours, and no page documents it."""
    return kind.__module__.split(".")[0] in PACKAGES and kind not in public_classes()


def bases(kind: type) -> list[type]:
    """The bases of a class, without object; in place of one that no page documents, its own."""
    own = [base for base in kind.__bases__ if base is not object and not hidden(base)]
    for base in filter(hidden, kind.__bases__):
        own += [
            above for above in bases(base) if above is not ABC and not any(issubclass(k, above) for k in own)
        ]
    return own


def taken_in(kind: type) -> list[str]:
    """Names of members that a class has from bases which no page documents, with docstrings of their own."""
    shown = [own for base in bases(kind) if base in public_classes() for own in base.__mro__]
    return [
        name
        for base in kind.__mro__
        if hidden(base)
        for name, member in vars(base).items()
        if inspect.isroutine(member) or isinstance(member, property)
        if member.__doc__ and not name.startswith("_")
        if not any(name in vars(own) for own in (kind, *shown))
    ]


def show_bases(app: Sphinx, name: str, value: Any, options: Any, found: list[type]) -> None:
    """Name the bases that pages document."""
    found[:] = bases(value)


def entry(name: str, value: Any, room: str) -> list[str]:
    """The autodoc directive of one public name, with a line that leads back to the book."""
    back = ["", "   .. rst-class:: derived", "", f"      {derivations.where(room, name).sentence()}", ""]
    if inspect.isclass(value):
        members = dict.fromkeys(own for own in (*vars(value), *taken_in(value)) if not own.startswith("_"))
        options = [f"   :members: {', '.join(members)}", *["   :show-inheritance:"] * bool(bases(value))]
        return [f".. autoclass:: {name}", *options, *back]
    if inspect.isroutine(value):
        return [f".. autofunction:: {name}", *back]
    return [f".. autodata:: {name}", "   :no-value:", *back]


def leave_internal_names(
    app: Sphinx, env: Any, node: nodes.Element, content: nodes.Element
) -> nodes.Element | None:
    """Show a type of ours that exists but is not public as text; all else unresolved stays an error."""
    target = node.get("reftarget", "")
    parts = target.split(".")
    if node.get("refdomain") != "py" or (len(parts) > 1 and parts[0] not in PACKAGES):
        return None
    if len(parts) == 1:  # a type alias, written in an annotation by its bare name
        return content if target in bare_names() else None
    public = {f"{value.__module__}.{value.__qualname__}" for value in public_classes()}
    try:
        value = getattr(importlib.import_module(".".join(parts[:-1])), parts[-1])
    except (ImportError, AttributeError):
        return None
    ours = inspect.isclass(value) or isinstance(value, TypeVar)
    return content if ours and target not in public else None


@cache
def bare_names() -> frozenset[str]:
    """All names in all modules of ours, which are imported by the time that references are resolved."""
    modules = (module for name, module in list(sys.modules.items()) if name.startswith(BELOW))
    return frozenset().union(*map(vars, modules))


def gilib() -> ModuleType:
    """The package, imported when it is needed."""
    return importlib.import_module("gilib")


def written(value: Any) -> bool:
    """Whether it stands in a user's program: a function, or a class that checks its arguments."""
    checked = importlib.import_module("gilib.arguments").Checked
    return not inspect.isclass(value) or (issubclass(value, checked) and not inspect.isabstract(value))


class Room(SphinxDirective):
    """``{gilib-room} posteriors`` shows every public name defined in ``gilib.posteriors``.

    With ``:parts:`` in two parts: what one writes; what that builds, base classes first.
    """

    required_arguments = 1
    option_spec: ClassVar = {"parts": directives.flag}

    def run(self) -> list[nodes.Node]:
        room = self.arguments[0]
        known = public_names(gilib())
        here = {name: value for name, (place, value) in known.items() if place == room}
        if not here:
            raise self.error(
                f"gilib exports nothing from {room!r}; known: {sorted({r for r, _ in known.values()})}"
            )
        parts = {"": list(here)}
        if "parts" in self.options:
            built = sorted(
                (n for n, v in here.items() if not written(v)), key=lambda n: not inspect.isabstract(here[n])
            )
            parts = {"You write": [n for n, v in here.items() if written(v)], "What it builds": built}
        lines = [".. autolink-concat:: off", ""]  # examples of a name do not go on from those of another
        for title, names in parts.items():
            lines += [f".. rubric:: {title}", "   :class: part", ""] if title else []
            lines += [line for name in names for line in entry(name, here[name], room)]
        return _parsed(self, ["````{eval-rst}", *lines, "````"], f"gilib-room {room}")


class Names(SphinxDirective):
    """``{gilib-names}`` links to every name that ``import gilib`` offers itself, in alphabetical order."""

    def run(self) -> list[nodes.Node]:
        package = gilib()
        known = public_names(package)
        names = [f"{package.__name__}.{name}" for name in sorted(package.__all__, key=str.lower)]
        links = [f"{{py:obj}}`~{name}`" for name in names if name in known]
        return _parsed(self, [", ".join(links) + "."], "gilib-names")


def _parsed(directive: SphinxDirective, lines: list[str], source: str) -> list[nodes.Node]:
    container = nodes.container()
    directive.state.nested_parse(StringList(lines, source=source), directive.content_offset, container)
    return container.children


def setup(app: Sphinx) -> dict[str, Any]:
    # Looking for cycles in the trees of all pages takes two thirds of a build in which nothing has changed.
    gc.set_threshold(100_000, 50, 1000)
    autodoc._CLASS_NEW_BLACKLIST.append("gilib.arguments.Checked.__new__")  # it only checks those of __init__
    register_plugin("sphinxcontrib.bibtex.style.referencing", "round_brackets", RoundBrackets)
    app.connect("config-inited", configure, priority=400)
    app.connect("autodoc-process-docstring", tidy_docstring, priority=400)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("autodoc-process-bases", show_bases)
    app.connect("autodoc-skip-member", leave_out_foreign)
    app.connect("missing-reference", leave_internal_names)
    app.add_directive("gilib-room", Room)
    app.add_directive("gilib-names", Names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
