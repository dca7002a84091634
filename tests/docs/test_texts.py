"""Texts of the pages name only commands, options, keys and errors that exist."""

import builtins
import re
from collections.abc import Iterator

import pytest

import skyward as sky
from skyward.commands.table.every_command import OF_COMMAND_LINE
from skyward_kernel.commands.registry import COMMANDS
from tests.docs.blocks import ROOT, pages
from tests.unit.test_error_texts import FLAGS_OF_OTHERS, flags

pytestmark = pytest.mark.docs

FLAGS_OF_COMMANDS = {
    "--before",
    "--cap-add",
    "--device",
    "--check",
    "--compare",
    "--constraint",
    "--cpus",
    "--cpus-per-task",
    "--gpus",
    "--gres",
}
FLAGS_OF_COMMANDS |= {"--internal", "--jobs", "--mem", "--no-requeue", "--overlap", "--overwrite", "--rm", "--scale"}
"""Flags of Slurm, of container engines, of the benchmarks and of our scripts, which pages mention."""

ERRORS_OF_OTHERS = {"CalledProcessError", "CancelledError", "CannotPullContainerError"}
"""Errors of Python's library and of clouds, which pages mention."""


def mentions(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield each match of a pattern at the start of code in a sentence, with its page."""
    for page in pages():
        text = page.read_text()
        if page.name == "coming-from.md":
            text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.MULTILINE)  # the column with names of other libraries
        text = re.sub(r"^(```+).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
        for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
            for match in re.finditer(pattern, code):
                yield page.relative_to(ROOT).as_posix(), match[1]


def test_commands_of_notebooks_exist() -> None:
    assert [(page, name) for page, name in mentions(r"^%sky ([a-z]+)") if name not in COMMANDS] == []


def test_commands_of_terminals_exist() -> None:
    known = {word for name in OF_COMMAND_LINE for word in (name, name.partition(" ")[0])} | {"help"}
    assert [(page, name) for page, name in mentions(r"^(?:sky|skyward) ([a-z]+)") if name not in known] == []


def test_options_exist() -> None:
    known = flags() | FLAGS_OF_OTHERS | FLAGS_OF_COMMANDS
    assert [(page, flag) for page, flag in mentions(r"(?<![\w-])(--[a-z][\w-]+)") if flag not in known] == []


def test_errors_exist() -> None:
    ours = {name for name in sky.errors.__all__ if name.endswith("Error")}
    found = [(page, name) for page, name in mentions(r"^(?:sky\.)?([A-Z]\w+Error)$")]
    assert ours & {name for _, name in found}
    known = ours | {*dir(builtins)} | ERRORS_OF_OTHERS
    assert [(page, name) for page, name in found if name not in known] == []
