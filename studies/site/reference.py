"""The reference: every public name with its signature, fields, shapes and an example, from the docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import headcount as hc
from studies.site.markup import anchor, as_markdown, escaped, fenced, table

DOCS = Path(__file__).parents[2] / "docs"
NO_ENTRY = ("__version__", "papers", "tasks")
IMPORTED = re.compile(r"^>>> (?:from|import) .*$", flags=re.MULTILINE)
WIDE = 100  # characters up to which a signature stands on one line


class Entry(NamedTuple):
    """A public name: where it stands, the value, and the label under which pages link to it."""

    space: str
    name: str
    value: Any

    @property
    def label(self) -> str:
        kind = "class" if inspect.isclass(self.value) else "name"
        return f"{anchor(self.space, self.name)}-{kind}"

    @property
    def doc(self) -> str:
        """Its own docstring; of a plain value the one of its kind."""
        shown = self.value if _documented(self.value) else type(self.value)
        return "" if shown in (dict, tuple, list) else inspect.getdoc(shown) or ""

    @property
    def summary(self) -> str:
        """The first sentence."""
        first = re.split(r"\n\s*\n|\n>>> ", self.doc, maxsplit=1)[0]
        return " ".join(re.split(r"(?<=[.])\s", first + " ", maxsplit=1)[0].split())


class Field(NamedTuple):
    """A field of a value: its name, type and default as they are written."""

    name: str
    type: str
    default: str


def _documented(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def spaces() -> dict[str, ModuleType]:
    """Every namespace of the reference, the front first."""
    return {"hc": hc, "hc.tasks": hc.tasks, **{f"hc.{name}": getattr(hc, name) for name in hc.PAPERS}}


@cache
def entries(space: str) -> tuple[Entry, ...]:
    """The public names of a namespace in the order of its `__all__`."""
    module = spaces()[space]
    return tuple(Entry(space, name, getattr(module, name)) for name in module.__all__ if name not in NO_ENTRY)


def fields(value: Any) -> list[Field]:
    """The fields of a value class, or the arguments that make any other."""
    if not inspect.isclass(value):
        return []
    if dataclasses.is_dataclass(value):
        return [_field(f) for f in dataclasses.fields(value) if f.init and not f.name.startswith("_")]
    if issubclass(value, BaseException) or getattr(value, "_is_protocol", False):
        return []
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return []
    usual = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [Field(p.name, _type(p.annotation), _default(p.default)) for p in parameters if p.kind not in usual]


def _field(field: dataclasses.Field[Any]) -> Field:
    by_factory = field.default_factory is not dataclasses.MISSING
    default = "made anew" if by_factory else "" if field.default is dataclasses.MISSING else repr(field.default)
    return Field(field.name, _type(field.type), default)


def _type(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation).replace("typing.", "")


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return value.__name__.replace("<lambda>", "...") if inspect.isfunction(value) else repr(value)


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads((DOCS / "reference/fields.toml").read_text(encoding="utf-8"))


def field_text(entry: Entry, field: str) -> str:
    """What a field holds: the word of its class, else the package's word; else it stands in the docstring."""
    words = _words()
    own = words.get(entry.name, {})
    own_text = own.get(field, "") if isinstance(own, dict) else ""
    general = words["words"].get(field, "")
    return own_text or _clause(entry.doc, field) or general


def _clause(doc: str, field: str) -> str:
    """The part of a docstring that explains a field, from one full stop or semicolon to the next.

    >>> _clause("One line. `a` is first; `b` second. `c`: 3.", "b")
    '`b` second'
    """
    words = " ".join(doc.partition("\n>>> ")[0].split())
    clauses = [part for part in re.split(r"(?<=[^.])[.;]\s+", words + " ") if f"`{field}`" in part]
    return clauses[0].strip() if clauses else ""


@cache
def blocks(space: str) -> tuple[str, ...]:
    """The examples of a namespace that stand outside docstrings, as the tests run them."""
    path = DOCS / f"reference/examples/{space.rpartition('.')[2]}.md"
    if not path.exists():
        return ()
    return tuple(re.findall(r"```pycon\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL))


def examples(entry: Entry) -> list[str]:
    """What shows the name in use: its own docstring's example stands there already; else blocks that name it."""
    if ">>> " in entry.doc and _documented(entry.value):
        return []
    word = re.compile(rf"\b{re.escape(entry.name)}\b")
    return [block for block in blocks(entry.space) if word.search(IMPORTED.sub("", block))]


def signature(entry: Entry) -> str:
    """How it is called, one argument a line where it is long."""
    if not _documented(entry.value):
        return f"{entry.space}.{entry.name}: {type(entry.value).__name__}"
    name = f"{entry.space}.{entry.name}"
    try:
        stated = inspect.signature(entry.value)
    except ValueError:
        return f"{name}(...)"
    if getattr(entry.value, "_is_protocol", False):
        return f"class {name}(Protocol)"
    parts = list(_parts(stated))
    end = "" if inspect.isclass(entry.value) else _type(stated.return_annotation)
    tail = f" -> {end}" if end else ""
    line = f"{name}({', '.join(parts)}){tail}"
    if len(line) <= WIDE:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){tail}"


def _parts(stated: inspect.Signature) -> Iterator[str]:
    """The parameters as they are written, with the star that says from where on they are given by name."""
    starred = False
    for parameter in stated.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred |= parameter.kind is inspect.Parameter.VAR_POSITIONAL
        named, kind = str(parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)), ""
        if annotation := _type(parameter.annotation):
            kind = f": {annotation}"
        yield named + kind + (f" = {default}" if (default := _default(parameter.default)) else "")


def methods(value: Any) -> list[tuple[str, str]]:
    """The public methods and properties that say what they are, with their first sentence."""
    if not inspect.isclass(value):
        return []
    listed = []
    for name in dir(value):
        member = inspect.getattr_static(value, name)
        home = next((base for base in value.__mro__ if name in vars(base)), None)
        ours = home is not None and home.__module__.startswith("headcount")
        ours &= not type(member).__module__.startswith("sklearn")
        function = getattr(member, "__func__", member)
        described = isinstance(member, property | cached_property) or inspect.isroutine(function)
        if name.startswith("_") or not ours or not described or not (doc := inspect.getdoc(function)):
            continue  # the words of a plain value would be those of its type
        call = "()" if inspect.isroutine(function) else ""
        listed.append((f"`.{name}{call}`", escaped(doc.split("\n\n")[0].replace("\n", " "))))
    return listed


def _linker(space: str) -> Any:
    """Backticks that name a public name become links to it."""
    known = {e.name: e.label for e in entries("hc")} | {e.name: e.label for e in entries(space)}

    def link(code: str) -> str:
        name = code.strip("`").partition("(")[0].removeprefix("hc.")
        return f"[{code}](#{known[name]})" if name in known else code

    return link


def _entry(entry: Entry) -> str:
    value, link = entry.value, _linker(entry.space)
    kind = "class" if inspect.isclass(value) else "function" if inspect.isroutine(value) else "value"
    home = getattr(value, "__module__", type(value).__module__)
    parts = [f"({entry.label})=", f"## `{entry.space}.{entry.name}`", "", f"*{kind}* of `{home}`", ""]
    parts += [fenced(signature(entry)), as_markdown(entry.doc, link), ""]
    if named := fields(value):
        rows = [
            (
                f"`{f.name}`",
                f"`{f.type or 'any'}`".replace("|", "\\|"),
                _shown(f.default),
                escaped(field_text(entry, f.name)),
            )
            for f in named
        ]
        parts += [table(["field", "type and shape", "default", "what it holds"], rows)]
    if listed := methods(value):
        parts += [table(["also has", ""], listed)]
    for block in examples(entry):
        parts += [fenced(block, "pycon")]
    return "\n".join(parts)


def _shown(default: str) -> str:
    return f"`{default}`".replace("|", "\\|") if default and len(default) < 60 else "given" if default else ""


TITLES = {"hc": "The front: `import headcount as hc`", "hc.tasks": "Tasks: `hc.tasks`"}


def page_name(space: str) -> str:
    """The file of a namespace's page."""
    return f"reference/{'front' if space == 'hc' else space.rpartition('.')[2]}.md"


def _page(space: str) -> str:
    about = as_markdown(inspect.getdoc(spaces()[space]) or "", _linker(space))
    title = TITLES.get(space, f"`{space}`")
    rows = [(f"[`{e.name}`](#{e.label})", escaped(e.summary)) for e in entries(space)]
    return "\n".join([f"# {title}", "", about, "", table(["name", "what it is"], rows), *map(_entry, entries(space))])


def index() -> str:
    """Every public name on one page."""
    rows = [(f"[`{space}.{e.name}`](#{e.label})", escaped(e.summary)) for space in spaces() for e in entries(space)]
    return "\n".join(["# Every public name", "", table(["name", "what it is"], rows)])


def pages() -> dict[str, str]:
    """The pages of the reference that are made from the package."""
    return {page_name(space): _page(space) for space in spaces()} | {"reference/names.md": index()}
