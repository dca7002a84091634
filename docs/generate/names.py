"""Entries of the public names, each in the topic to which the room of the code belongs that defines it."""

import importlib
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from string import ascii_uppercase
from typing import Any, Final

from sphinx.util.inspect import stringify_signature
from sphinx.util.typing import stringify_annotation

import skyward as sky
from docs.generate.docstrings import restructured

__all__ = ["MODULES", "TOPICS", "entries", "home", "kind_of", "topic_of"]

_ROOMS: Final[Mapping[str, tuple[str, ...]]] = {
    "errors": ("skyward.errors",),
    "events": ("skyward.events.kinds", "skyward.events.stream"),
    "functions": ("skyward.functions", "skyward.control.act.tasks", "skyward.pool.executor", "skyward.specs.retries"),
    "providers": ("skyward_providers",),
    "account": ("skyward.market", "skyward.journal", "skyward.pool.account", "skyward.pool.reaping"),
    "storage": ("skyward.storage", "skyward.specs.storage", "skyward.specs.volume", "skyward.events.volumes"),
    "pools": ("skyward.pool", "skyward.specs", "skyward.accelerators", "skyward.control.act.recovered_tasks"),
    "nodes": ("skyward.task.instance", "skyward.task.output", "skyward.task.sharding", "skyward.task.volumes"),
    "collections": ("skyward.task.collections",),
    "kept": ("skyward.kept",),
    "observation": ("skyward.control.observe", "skyward.events", "skyward.views"),
}
"""Rooms of each topic; the first one that matches decides."""

MODULES: Final[Mapping[str, str]] = {
    "time": "pools",
    "accelerators": "accelerators",
    "collections": "collections",
    "errors": "errors",
    "events": "events",
    "plugins": "plugins",
    "providers": "provider-protocol",
    "scaling": "scaling",
}
"""Topic of the members of each public module."""

_ORDER: Final = ("function", "data", "class", "exception", "type", "module")
"""Order of the kinds of names on a page."""

TOPICS: Final = tuple(dict.fromkeys((*_ROOMS, *MODULES.values(), "types")))
"""All topics."""


def home(value: object) -> str:
    """Return the module that defines a value; that of its type if it is neither a class nor a function."""
    return str(getattr(value, "__module__", None) or type(value).__module__)


def topic_of(name: str) -> str:
    """Return the topic of a public name.

    Raises:
        LookupError: no topic has the room that defines it.
    """
    if name in MODULES:
        return MODULES[name]
    module = home(getattr(sky, name))
    for topic, rooms in _ROOMS.items():
        if any(module == room or module.startswith(f"{room}.") for room in rooms):
            return topic
    raise LookupError(f"No page of the reference has sky.{name}: add {module} to docs/generate/names.py.")


def kind_of(value: object) -> str:
    """Return the directive of autodoc for a value."""
    match value:
        case _ if inspect.ismodule(value):
            return "module"
        case typing.TypeAliasType():
            return "type"
        case type() if issubclass(value, BaseException):
            return "exception"
        case type():
            return "class"
        case _ if inspect.isroutine(value):
            return "function"
    return "data"


@cache
def _placed() -> Mapping[str, str]:
    """Return the topic of each name, with those of public modules as `events.NodeReady`; each value has one entry."""
    found: dict[str, str] = {}
    seen: set[int] = set()
    for name in sky.__all__:
        found[name] = topic_of(name)
        seen.add(id(getattr(sky, name)))
    for module, topic in MODULES.items():
        public = getattr(sky, module)
        for name in public_members(module):
            value = getattr(public, name)
            if kind_of(value) == "data" or id(value) not in seen:
                found[f"{module}.{name}"] = topic
                seen.add(id(value))
    return found


def public_members(module: str) -> list[str]:
    """Return the public names of a public module."""
    found = getattr(sky, module)
    listed = getattr(found, "__all__", None)
    if listed is not None:
        return list(listed)
    if found is sky.accelerators:
        return [name for name, value in vars(found).items() if _is_accelerator(name, value)]
    raise LookupError(f"sky.{module} has no __all__.")


def _is_accelerator(name: str, value: object) -> bool:
    """Return whether this is a name of the catalogue, which is called for the number of a node."""
    return (
        name[0] in ascii_uppercase
        and callable(value)
        and home(value) == sky.accelerators.__name__
        and (inspect.isfunction(value) or type(value).__name__ == "Model")
    )


def entries(topic: str) -> str:
    """Return the entries of a topic, as directives of autodoc."""
    if topic == "types":
        return _fenced(_types())
    value_of = {name: _value(name) for name, where in _placed().items() if where == topic}
    order = sorted(value_of, key=lambda name: _ORDER.index(kind_of(value_of[name])))
    return _fenced(line for name in order for line in _entry(name, value_of[name]))


def _value(name: str) -> object:
    value: object = sky
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _fenced(lines: typing.Iterable[str]) -> str:
    return "\n".join(("````{eval-rst}", *lines, "````"))


def _entry(name: str, value: object) -> Iterator[str]:
    full = f"skyward.{name}"
    match kind_of(value):
        case "module":
            yield from (f".. py:module:: {full}", "", f"   {_first_line(value)}", "")
        case "type":
            yield from _type(full, value)
        case "data" if name.startswith("accelerators."):
            chip: Any = value
            made = chip()
            facts = ", ".join(filter(None, (made.memory, *(made.metadata or {}).values())))
            yield from (f".. py:function:: {full}(*, count=1)", "", f"   {facts}", "")
        case "class":
            if name.startswith("plugins.") and getattr(value, "__name__", "") != full.rpartition(".")[2]:
                yield from _plugin(full, value)
            else:
                yield from (f".. autoclass:: {full}", "   :members:", "   :inherited-members:", "")
        case kind:
            yield from (f".. auto{kind}:: {full}", "")


def _first_line(value: object) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")


def _plugin(name: str, value: Any) -> Iterator[str]:
    """Yield the entry of a plugin, a class with another name than the one by which it is public."""
    signature = stringify_signature(inspect.signature(value), unqualified_typehints=True, short_literals=True)
    yield from (f".. py:class:: {name}{signature.removesuffix(' -> None')}", "")
    yield from (f"   {line}" for line in restructured(inspect.getdoc(value) or "", value))
    yield ""


def _type(name: str, value: Any) -> Iterator[str]:
    written = stringify_annotation(value.__value__, "smart")
    yield from (f".. py:type:: {name}", f"   :canonical: {written}", "")


def _types() -> Iterator[str]:
    """Yield the entries of types that public names mention, and that have no public name themselves."""
    public = {id(_value(name)) for name in _placed()}
    for name, value in sorted(_mentioned().items()):
        if id(value) in public:
            continue
        if isinstance(value, typing.TypeAliasType):
            yield from _type(name, value)
        else:
            yield from (f".. py:class:: {name}", "", f"   {_first_line(value)}", "")
            for field, kind in value.__annotations__.items():
                yield from (f"   .. py:attribute:: {field}", f"      :type: {stringify_annotation(kind, 'smart')}", "")


@cache
def _mentioned() -> Mapping[str, Any]:
    """Return the types of ours, other than classes, in the annotations of public functions, methods and fields."""
    found: dict[str, Any] = {}
    waiting = [annotation for name in _placed() for annotation in _annotations(_value(name))]
    while waiting:
        module, annotation = waiting.pop()
        for word in re.findall(r"[A-Za-z_][\w.]*", _text(annotation)):
            value = _in_module(module, word)
            named = f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}"
            if named.startswith("skyward") and named not in found and _is_shown(value):
                found[named] = value
                inner = [value.__value__] if isinstance(value, typing.TypeAliasType) else value.__annotations__.values()
                waiting += [(value.__module__, each) for each in inner]
    return found


def _is_shown(value: object) -> bool:
    return isinstance(value, typing.TypeAliasType) or typing.is_typeddict(value)


def _text(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else stringify_annotation(annotation, "fully-qualified")


def _in_module(module: str, name: str) -> Any:
    """Return what a name in an annotation of a module stands for; None if it is not found."""
    owner, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module(owner or module), last, None)
    except (ImportError, ValueError):
        return None


def _annotations(value: object) -> Iterator[tuple[str, object]]:
    """Yield the annotations of a function, or of the methods and fields of a class, with their module."""
    for each in [value, *(vars(value).values() if isinstance(value, type) else ())]:
        each = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
        hints = inspect.get_annotations(each) if callable(each) or isinstance(each, type) else {}
        for overload in (
            [hints, *(inspect.get_annotations(more) for more in typing.get_overloads(each))]
            if callable(each) and inspect.isfunction(each)
            else [hints]
        ):
            yield from ((home(each), annotation) for annotation in overload.values())
