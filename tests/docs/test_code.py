"""Every code block of the pages and of the README is run, or validated where it needs what is not on this machine."""

import ast
import asyncio
import builtins
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import joblib
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import skyward as sky
from skyward.cli import main as cli
from skyward.commands.table.every_command import OF_COMMAND_LINE
from skyward.commands.words import parse
from skyward.config import load
from skyward_jupyter.options.cell_options import parse_cell, split_expression
from skyward_jupyter.options.option_table import CELL_OPTIONS
from skyward_jupyter.options.settings import NAMES, settings_from
from skyward_kernel.commands.registry import COMMANDS
from skyward_providers import adapter_serve
from tests.docs.blocks import ROOT, Block, blocks, pages
from tests.docs.stand_ins import STAND_INS
from tests.notebook import Notebook, managed_pools, new_notebook

pytestmark = pytest.mark.docs

LANGUAGES = {
    "python": "run",
    "ipython": "run, in a notebook",
    "toml": "read by Skyward, or compared with our own files",
    "sh": "parsed by the parsers of the commands",
    "json": "parsed",
    "csv": "read as a trace",
    "text": "an output, a message or a drawing: no code",
}
"""Languages of blocks, and what a test does with each."""

SEARCH = {"joblib": joblib, "GridSearchCV": GridSearchCV, "SVC": SVC}
"""Names that cells do not get: a node would import scikit-learn with the module of the others."""

ROOTS: Mapping[str, Any] = {"sky": sky, "pool": sky.Compute, "storage": sky.Storage}
"""Names whose attributes are looked up, and what they are, or the class of what they stand for."""

ON_LOCAL_NODES = "on local nodes"
NAMES_ONLY = "names only: "
ELSEWHERE = "in "


def named(found: tuple[Block, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", found, ids=lambda block: block.place)


def by_page(language: str) -> pytest.MarkDecorator:
    found = [(page, tuple(group)) for page, group in groupby(blocks(language), lambda block: block.page)]
    return pytest.mark.parametrize("on_page", [group for _, group in found], ids=[page for page, _ in found])


def test_every_block_has_a_language_that_a_test_knows() -> None:
    assert [block.place for block in blocks() if block.language not in LANGUAGES] == []


def test_code_is_in_fences() -> None:
    """Indented code has no language, so no test would know what it is."""
    wrong = []
    for page in pages():
        text = re.sub(r"^(```+).*?^\1$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        wrong += [f"{page.relative_to(ROOT)}: {line}" for line in re.findall(r"\n\n(    [^\s\d*-].*)", text)]
    assert wrong == []


def test_marks_say_what_a_test_does() -> None:
    wrong = [
        block.place
        for block in blocks()
        if block.mark and block.mark != ON_LOCAL_NODES and not block.mark.startswith((NAMES_ONLY, ELSEWHERE))
    ]
    assert wrong == []


@named(tuple(block for block in blocks() if block.mark.startswith(ELSEWHERE)))
def test_block_is_run_by_the_test_that_its_mark_names(block: Block) -> None:
    test = ROOT / block.mark.removeprefix(ELSEWHERE)
    text = test.read_text() + (ROOT / "tests" / "documented_provider.py").read_text() * ("provider" in test.name)
    assert Path(block.page).name in text


@pytest.fixture(scope="module")
def pool() -> Iterator[sky.Compute]:
    with sky.Compute(nodes=3, name="pages") as pool:
        yield pool


@by_page("python")
def test_code_of_the_page_runs(
    on_page: tuple[Block, ...],
    pool: sky.Compute,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_abc")
    names: dict[str, Any] = {"__name__": "__main__"}
    real = sky.Compute
    for block in on_page:
        names |= {} if is_tutorial(block) else {**STAND_INS, **SEARCH, "sky": sky}
        names["pool"] = pool
        if block.mark.startswith(ELSEWHERE):
            continue
        if block.mark.startswith(NAMES_ONLY):
            check_names(block, names)
            continue
        with monkeypatch.context() as patched:
            if block.mark == ON_LOCAL_NODES:
                patched.setattr(sky, "Compute", lambda *specs, **given: real(*specs, **given) and real(nodes=2))
            capsys.readouterr()
            run(block, names)
            check_output(block, capsys.readouterr().out)


def check_output(block: Block, printed: str) -> None:
    """Check that a block has printed the values that its comments give: `print(sum(parts))  # 4950`."""
    for comment in re.findall(r"^ *print\(.*\)  # (?:.*: )?([\[(\d][\w., \[\]()]*)$", block.code, re.MULTILINE):
        value = comment.partition(", and")[0]
        assert value in printed, f"{block.place}: {value} is not in {printed}"


def is_tutorial(block: Block) -> bool:
    """Return whether a block is on a page whose code is complete: what a block uses, an earlier one has defined."""
    return block.page.startswith("docs/start/")


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block; one that awaits at its top level runs in an event loop, as in a notebook."""
    code = compile("\n" * (block.line - 1) + block.code, block.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def check_names(block: Block, names: Mapping[str, Any]) -> None:
    """Compile a block, look up what it takes from `sky` and of a pool, and make the values that it describes."""
    tree = ast.parse(block.code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            looked_up(node)
        elif isinstance(node, ast.Call) and (called := looked_up(node.func)) is not None:
            arguments = {each.arg: each.value for each in node.keywords if each.arg}
            positional = [each for each in node.args if not isinstance(each, ast.Starred)]
            if isinstance(called, type) and not names_of(node) - names.keys():
                eval(compile(ast.Expression(node), block.place, "eval"), dict(names))
            elif len(positional) == len(node.args):
                method = [None] if ast.unparse(node.func).startswith(("pool.", "storage.")) else []
                inspect.signature(called).bind(*method, *positional, **arguments)


def looked_up(node: ast.expr) -> Any:
    """Return what `sky.plugins.torch` stands for, or a method of a pool or a storage; None for another expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in ROOTS or not parts:
        return None
    value: Any = ROOTS[node.id]
    for part in parts:
        value = getattr(value, part)
    return value


def names_of(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - {*dir(builtins)}


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    with managed_pools() as pools, new_notebook(pools) as notebook:
        notebook.shell.user_ns.update(STAND_INS)
        yield notebook


@by_page("ipython")
def test_cells_of_the_page_run(
    on_page: tuple[Block, ...], notebook: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in on_page:
        check_magics(block)
        if block.mark.startswith((NAMES_ONLY, ELSEWHERE)):
            continue
        code = block.code.rstrip()
        if block.mark == ON_LOCAL_NODES:
            code = without_machines(code)
        if code != "%load_ext skyward":
            ran = notebook(code)
            assert ran.error is None, f"{block.place}: {ran.shown}"
            check_output(block, ran.out)


def check_magics(block: Block) -> None:
    """Parse the lines of magics by their own parsers."""
    for line in block.code.splitlines():
        if line.startswith("%%sky"):
            parse_cell(line.removeprefix("%%sky"))
        elif found := re.match(r"(?:\w+ = )?%sky! (.*)", line):
            options, expression = split_expression(found[1])
            parse_cell(options)
            compile(expression, block.place, "exec")
        elif found := re.match(r"%sky (\w+)(.*)", line):
            words = shlex.split(found[2], comments=True)
            parse(COMMANDS[found[1]], words)


def without_machines(code: str) -> str:
    """Return a cell without the options about its pool, which a test replaces by local nodes."""
    line, _, rest = code.partition("\n")
    kept: list[str] = ["--nodes", "2"]
    words = iter(shlex.split(line)[1:])
    for word in words:
        option = next((each for each in CELL_OPTIONS if word.partition("=")[0] in each.flags), None)
        if option is not None:
            kept += [word, next(words)] if option.metavar and "=" not in word else [word]
        elif not re.match(r"--[\w-]+=|--(?:spot|cluster)", word):
            next(words)
    return f"%%sky {shlex.join(kept)}\n{rest}"


@named(blocks("toml"))
def test_configuration_is_accepted(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tomllib.loads(block.code)
    if "project" in tables:
        (groups,) = tables.values()
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
        assert {*groups["entry-points"]} <= {*known}
        return
    monkeypatch.chdir(tmp_path)
    Path("skyward.toml").write_text(block.code)
    config = load()
    settings_from(dict.fromkeys(NAMES), (), config)
    for name in config.providers:
        assert config.provider(name) is not None
    for name in config.pools:
        assert sky.Compute(name=name).name == name


@named(blocks("sh"))
def test_command_line_is_accepted(block: Block) -> None:
    for line in re.sub(r"\\\n\s*", "", block.code).splitlines():
        words = shlex.split(re.sub(r">>? .*", "", line), comments=True)  # without the file that the output goes to
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words.pop(0)
        if words:
            check_command(words)


def check_command(words: list[str]) -> None:
    """Check that a command exists, with these arguments."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    match words:
        case ["make", target, *rest]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
            assert not rest
        case ["sky" | "skyward", *rest] | ["python", "-m", "skyward", *rest]:
            if rest and rest not in (["--version"], ["--help"]):
                name, rest = cli._named("sky", rest)
                given, _ = cli._split(rest, OF_COMMAND_LINE[name])
                parse(OF_COMMAND_LINE[name], given, "sky")
        case ["python", "-m", "skyward_providers.adapter", *rest]:
            adapter_serve._parser().parse_args(rest)
        case [*_, "pip", "install", requirement]:
            extras = re.search(r"\[(.+)\]", requirement)
            assert re.match(rf"(\.|{project['name']})(\[|$)", requirement), requirement
            assert extras is None or {*extras[1].split(",")} <= {*project["optional-dependencies"]}
        case ["python", script] | ["jupyter", "lab", script]:
            assert script.endswith((".py", ".ipynb"))
        case _:
            pytest.fail(f"no test knows the command {words}")


@named(blocks("json"))
def test_json_is_valid(block: Block) -> None:
    for line in block.code.splitlines():
        json.loads(line)


@named(blocks("csv"))
def test_trace_is_accepted(block: Block, tmp_path: Path) -> None:
    from skyward.simulator.trace import read_trace

    trace = tmp_path / "trace.csv"
    trace.write_text(block.code)
    assert read_trace(trace)
