"""Texts in the code name only things that exist: public names, methods, arguments, subcommands, flags and files."""

import ast
import contextlib
import inspect
import io
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import skyward as sky
from skyward.commands.table.every_command import OF_COMMAND_LINE
from skyward.specs import ComputeFields
from skyward_jupyter.options.option_table import OPTIONS
from skyward_kernel.commands.registry import COMMANDS
from skyward_providers import adapter_serve
from tests.unit.jupyter.conftest import new_shell

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
PACKAGES = ("skyward", "skyward_jupyter", "kernel_bridge", "providers")
SOURCES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def text_of(node: ast.expr) -> str:
    """Return the text of a literal, with `…` for each value that is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(text_of, parts))
        case _:
            return "…"


@cache
def sentences() -> tuple[tuple[str, str], ...]:
    """Return the texts in the code that have several words, except docstrings, with their places."""
    found = []
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                skipped |= set(map(id, node.values))
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in skipped and " " in text_of(node):
                found.append((f"{path.relative_to(ROOT)}:{node.lineno}", text_of(node)))
    return tuple(found)


def mentions(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield each match of `pattern` in a sentence, with its place."""
    for place, text in sentences():
        for match in re.finditer(pattern, text):
            yield place, match[1]


def test_texts_name_existing_public_names() -> None:
    wrong = []
    for place, path in mentions(r"(?<![\w.%`/])`?sky\.([A-Za-z]\w*(?:\.[A-Za-z]\w*)*)"):
        value: object = sky
        for name in path.split("."):
            value = getattr(value, name, None)
        if value is None:
            wrong.append(f"{place}: sky.{path}")
    assert not wrong


def test_texts_name_existing_methods_of_pools() -> None:
    wrong = [f"{place}: pool.{name}" for place, name in mentions(r"\bpool\.(\w+)") if not hasattr(sky.Compute, name)]
    assert not wrong


def fields() -> set[str]:
    """Return the names of all arguments of public functions, methods and classes."""
    names: set[str] = set()
    plugins = [getattr(sky.plugins, name) for name in sky.plugins.__all__]
    for value in [*(getattr(sky, name) for name in sky.__all__), *plugins]:
        members = [value, *vars(value).values()] if isinstance(value, type) else [value]
        for member in members:
            with contextlib.suppress(TypeError, ValueError):
                names |= set(inspect.signature(member).parameters)
        names |= set(getattr(value, "__annotations__", ()))
    return names | ComputeFields.__required_keys__ | ComputeFields.__optional_keys__


def test_texts_name_existing_arguments() -> None:
    known = fields()
    wrong = [f"{place}: {name}=" for place, name in mentions(r"`([a-z]\w+)=") if name not in known]
    assert not wrong


def test_texts_name_existing_subcommands_of_the_magic() -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out, new_shell() as shell:
        shell.run_line_magic("load_ext", "skyward")
        shell.run_line_magic("sky", "help")
    known = set(re.findall(r"%sky (\w+)", out.getvalue()))
    wrong = [f"{place}: %sky {name}" for place, name in mentions(r"`%sky ([a-z]+)") if name not in known]
    assert not wrong


FLAGS_OF_OTHERS = {"--editable", "--version", "--volume", "--jp-error-color1", "--no-install-recommends"}
FLAGS_OF_OTHERS |= {"--method", "--header", "--qos", "--project", "--aws-service-name", "--upgrade", "--target"}
FLAGS_OF_OTHERS |= {"--index-url", "--emit-index-url", "--no-header", "--no-deps", "--epochs", "--force-reinstall"}
"""Flags of pip, uv, container engines, apt, Slurm, wget, gcloud and aws, and a variable of a style sheet."""


def flags() -> set[str]:
    """Return the flags of `%%sky`, of `%sky`, of `sky` and of the reference adapter."""
    found = {flag for option in OPTIONS for flag in option.flags}
    found |= {flag for command in COMMANDS.values() for option in command.flags for flag in option.flags}
    found |= {flag for command in OF_COMMAND_LINE.values() for option in command.flags for flag in option.flags}
    found |= {"--help", "--version"}
    return found | {flag for action in adapter_serve._parser()._actions for flag in action.option_strings}


def test_texts_name_existing_flags() -> None:
    known = flags() | FLAGS_OF_OTHERS
    wrong = [f"{place}: {flag}" for place, flag in mentions(r"(?<![\w-])(--[a-z][\w-]+)") if flag not in known]
    assert not wrong


def test_texts_name_existing_subcommands_of_the_command() -> None:
    known = {word for name in OF_COMMAND_LINE for word in (name, name.partition(" ")[0])}
    wrong = [f"{place}: {name}" for place, name in mentions(r"`(?:sky|skyward) ([a-z]\w+)") if name not in known]
    assert not wrong


def test_code_names_existing_files_of_the_documentation() -> None:
    named = {(path, name) for path in SOURCES for name in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text())}
    assert named
    assert not [f"{path}: {name}" for path, name in named if not (ROOT / name).exists()]
