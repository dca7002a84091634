"""The public API is complete: each type that it returns is public, documented, and has a name of its own."""

import ast
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import skyward as sky

pytestmark = pytest.mark.unit

ROOT = Path(sky.__file__).parent
OURS = ("skyward", "skyward_providers")
MODULES = sorted(name for name in sky.__all__ if inspect.ismodule(getattr(sky, name)))


def load_library() -> dict[str, object]:
    """Import every module of the library; return the types that annotations in strings name."""
    found: dict[str, object] = {}
    for info in pkgutil.walk_packages(sky.__path__, "skyward."):
        if info.name.rpartition(".")[2] != "__main__":
            module = importlib.import_module(info.name)
            found |= {name: value for name, value in vars(module).items() if _is_type(value)}
    return found | {name.rpartition(".")[2]: value for name, value in public_things() if _is_type(value)}


def _is_type(value: object) -> bool:
    return isinstance(value, type | typing.TypeAliasType)


def public_things() -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each public name, and of the names of public modules."""
    for name in sky.__all__:
        value = getattr(sky, name)
        if inspect.ismodule(value):
            members = getattr(value, "__all__", ())
            yield from ((f"{name}.{member}", getattr(value, member)) for member in members)
        else:
            yield name, value


def functions_of(name: str, value: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield a function, or the public methods and properties of a class."""
    if isinstance(value, types.FunctionType):
        yield name, value
    elif isinstance(value, type):
        for member in dir(value):
            found = inspect.getattr_static(value, member)
            if isinstance(found, property):
                found = found.fget
            if isinstance(found, classmethod | staticmethod):
                found = found.__func__
            if isinstance(found, types.FunctionType) and not member.startswith("_"):
                yield f"{name}.{member}", found


def classes_in(annotation: Any) -> Iterator[type]:
    """Yield the classes of this project in an annotation, also those in its arguments."""
    origin = typing.get_origin(annotation)
    if isinstance(annotation, typing.TypeAliasType):
        yield from classes_in(annotation.__value__)
    elif isinstance(origin, typing.TypeAliasType):
        yield from classes_in(origin.__value__)
    elif isinstance(annotation, list):
        yield from (found for each in annotation for found in classes_in(each))
    elif origin is not None:
        yield from classes_in(origin)
        yield from (found for each in typing.get_args(annotation) for found in classes_in(each))
    elif isinstance(annotation, type) and annotation.__module__.partition(".")[0] in OURS:
        yield annotation


def hints_of(value: Callable[..., Any] | type, names: dict[str, object]) -> dict[str, Any]:
    parameters = {each.__name__: each for each in getattr(value, "__type_params__", ())}
    owner = getattr(inspect.getmodule(value), value.__qualname__.partition(".")[0], None)
    parameters |= {each.__name__: each for each in getattr(owner, "__type_params__", ())}
    module = vars(importlib.import_module(value.__module__))
    return typing.get_type_hints(value, {**names, **module}, parameters)


def test_every_type_that_the_api_returns_is_public() -> None:
    names = load_library()
    public = {id(value) for _, value in public_things()}
    missing: dict[str, str] = {}
    for name, value in public_things():
        returned = [(where, hints_of(each, names).get("return")) for where, each in functions_of(name, value)]
        if isinstance(value, type) and hasattr(value, "__dataclass_fields__"):
            fields = hints_of(value, names)
            returned += [(f"{name}.{field}", kind) for field, kind in fields.items() if not field.startswith("_")]
        for where, annotation in returned:
            missing |= {each.__qualname__: where for each in classes_in(annotation) if id(each) not in public}
    assert not missing, f"not public, but returned by: {missing}"


def test_every_public_name_has_a_docstring() -> None:
    documented = {name: isinstance(value, typing.TypeAliasType) or value.__doc__ for name, value in public_things()}
    assert [name for name, found in documented.items() if not found] == []


SHARED_NAMES = {
    "Event": "also a message of a worker to its client",
    "NodeDraining": "also the message to the task manager that the event reports",
    "NodeLost": "also the message to the task manager that the event reports",
    "NodeRemoved": "also the message to the task manager that the event reports",
    "main": "the entry point of each program",
    "barrier": "the state of the collection, on its nodes",
    "lock": "the state of the collection, on its nodes",
    "queue": "the state of the collection, on its nodes",
}
"""Public names that other modules use too, and what for."""


def test_no_other_module_uses_a_public_name() -> None:
    public = {name.rpartition(".")[2] for name, _ in public_things()} - set(MODULES) - set(SHARED_NAMES)
    homes: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        body = ast.parse(path.read_text()).body
        names = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        names |= {node.name.id for node in body if isinstance(node, ast.TypeAlias)}
        for name in names & public:
            homes.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
