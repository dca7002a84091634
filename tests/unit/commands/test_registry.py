"""Each command of the registry is in every place that is made from it."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from scripts.panel_types import PATH
from skyward.commands.command import Command
from skyward.commands.messages import json_type, sent_forms
from skyward.commands.words import parse
from skyward_jupyter.magics.access import help_of_magics
from skyward_jupyter.magics.completion import offered
from skyward_kernel.commands.registry import COMMANDS
from skyward_kernel.panel.decoding import decode

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parents[3] / "docs"
WORDS = {
    **{"pool": "p", "orphan": "p", "node": "1", "nodes": "2:4", "kept": "x", "cell": "1", "command": "up"},
    "provider": "runpod",
}
VALUES = {"text": "1", "number": 1, "true": True, "texts": ["a"], "options": {"--nodes": "2"}}

each_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)


@each_command
def test_help_and_completion_include_the_command(command: Command) -> None:
    assert f"%sky {command.name} {command.usage}".rstrip() in help_of_magics()
    assert command.help in help_of_magics()
    assert command.name in offered("%sky ", {})
    flags = set(offered(f"%sky {command.name} ", {}))
    assert {option.name for option in command.flags} <= flags
    listed = offered(f"%sky {command.name} ", {each.kind.name: lambda _: ["value"] for each in command.arguments})
    assert ("value" in listed) == bool(command.arguments)


@each_command
def test_docs_describe_the_command(command: Command) -> None:
    usage = f"{command.name} {command.usage}".strip().replace("|", "\\|")
    assert f"| `%sky {usage}` | {command.help} |" in (DOCS / "use" / "cells.md").read_text()


@each_command
def test_handler_takes_the_arguments_of_the_command(command: Command) -> None:
    parameters = list(inspect.signature(command.handler).parameters.values())
    wanted = {each.name for each in command.arguments} | {option.target for option in command.options}
    wanted |= {"options"} if command.collected else set()
    context, *others = parameters
    assert context.name == "context"
    named = {each.name for each in others if each.kind is inspect.Parameter.KEYWORD_ONLY}
    takes_others = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in others)
    assert named <= wanted if takes_others else named == wanted
    required = {each.name for each in others if each.name in named and each.default is inspect.Parameter.empty}
    assert required == {each.name for each in command.arguments if each.required}


@each_command
def test_words_of_the_command_are_parsed(command: Command) -> None:
    words = [WORDS[each.kind.name] for each in command.arguments]
    parsed = parse(command, words)
    assert set(parsed) == {each.name for each in command.arguments} | ({"options"} if command.collected else set())
    if command.takes_pool:
        assert parse(command, [*words[1:], "--pool", words[0]]) == parsed


@each_command
def test_forms_are_accepted_by_the_kernel_and_typed_in_the_panel(command: Command) -> None:
    source = PATH.read_text()
    for form in command.forms:
        assert not form.entry or f"label: '{form.label}'" in source
        assert bool(form.choice) == bool(form.question)
    for form in sent_forms(command):
        arguments: dict[str, Any] = {name: VALUES[json_type(command, name)] for name in form.arguments}
        decode({"kind": "run", "id": "1", "command": command.name, "arguments": arguments})
        assert f"kind: 'run'; command: '{command.name}'; arguments:" in source
