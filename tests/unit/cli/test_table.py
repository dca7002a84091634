"""The command line is made from the table of commands: each has its help, its handler and its place in the docs."""

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from skyward.cli.main import HANDLERS, main
from skyward.cli.terminal.completing import FILES, offered
from skyward.cli.terminal.help_pages import help_of, usage_of
from skyward.commands.command import Command
from skyward.commands.table.every_command import DECLARED, OF_COMMAND_LINE
from skyward.commands.table.pool_options import POOL_OPTIONS, UPDATE_OPTIONS
from skyward.commands.words import parse
from skyward.specs.update import UpdateFields
from skyward_jupyter.options.option_table import OPTIONS
from skyward_kernel.commands.registry import COMMANDS

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parents[3] / "docs"
each_command = pytest.mark.parametrize("command", OF_COMMAND_LINE.values(), ids=lambda command: command.name)


@each_command
def test_handler_takes_the_arguments_of_the_command(command: Command) -> None:
    module, _, name = HANDLERS[command.name].partition(":")
    parameters = inspect.signature(getattr(import_module(module), name)).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return  # of options with dotted targets, which the command collects
    wanted = {each.name for each in command.arguments} | {option.target for option in command.options}
    wanted |= {"options"} if command.collected else set()
    wanted |= {"rest"} if command.rest else set()
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in parameters)
    assert {each.name for each in parameters} == wanted
    required = {each.name for each in parameters if each.default is inspect.Parameter.empty}
    assert required <= {each.name for each in command.arguments if each.required} | {"rest"}


@each_command
def test_help_has_every_option(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.name.split(), "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(f"usage: {usage_of('skyward', command)}")
    for option in (*command.options, *command.collected):
        assert option.name in text


@each_command
def test_docs_describe_the_command(command: Command) -> None:
    page = (DOCS / "use" / "command-line.md").read_text()
    assert f"`{usage_of('skyward', command)}`".replace("|", "\\|") in page


def test_each_command_has_a_handler() -> None:
    assert set(HANDLERS) == set(OF_COMMAND_LINE)


def test_notebooks_and_the_command_line_share_each_declaration() -> None:
    """A command or an option of both is one object."""
    assert {name for name, each in DECLARED.items() if each.in_notebooks} == set(COMMANDS)
    for name, command in COMMANDS.items():
        assert command.options is DECLARED[name].options
        assert command.arguments is DECLARED[name].arguments
    for shared in ("--on", "--file", "--sync", "--fetch", "--file-limit", "--timeout"):
        of_run = next(each for each in OF_COMMAND_LINE["run"].options if shared in each.flags)
        assert of_run is next(each for each in OPTIONS if shared in each.flags)
    assert OF_COMMAND_LINE["run"].collected is OF_COMMAND_LINE["up"].collected is POOL_OPTIONS
    assert [each for each in OPTIONS if each in POOL_OPTIONS] == list(POOL_OPTIONS)


def test_options_of_an_update_are_its_fields() -> None:
    fields = UpdateFields.__optional_keys__
    assert list(UPDATE_OPTIONS) == [each for each in POOL_OPTIONS if each.target.partition(".")[0] in fields]


def test_help_loads_no_cloud_and_no_notebook() -> None:
    """The start is fast: see the figure in docs/use/command-line.md."""
    program = (
        "import sys\nfrom skyward.cli.main import main\nmain(['--help'])\nmain(['run', '--help'])\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    heavy = {"IPython", "asyncio", "asyncssh", "boto3", "botocore", "casty", "cloudpickle", "cryptography", "httpx"}
    heavy |= {"numpy", "rich", "sqlite3", "skyward.control", "skyward.pool.compute", "skyward.config", "skyward_kernel"}
    assert not loaded & heavy


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rum"], "skyward: there is no command 'rum'; did you mean 'run'?"),
        (["zzz"], "skyward: there is no command 'zzz'; `skyward --help` lists the commands."),
        (["help", "zzz"], "skyward: there is no command 'zzz'; `skyward --help` lists the commands."),
        (["--nodes", "2"], "skyward: --nodes comes after a command; `skyward --help` lists the commands."),
        (["image"], "skyward: image takes an action: `skyward image build` or `skyward image list` or `skyward image"),
        (["run"], "skyward run: takes a script: `skyward run train.py --nodes 2 --gpu A100 -- --epochs 3`."),
        (
            ["run", "x.py", "--nodes", "some"],
            "skyward run: --nodes some: nodes must be N, MIN:MAX or DESIRED/MIN:MAX, such",
        ),
        (["run", "x.py", "--epochs", "3"], "skyward run: has no option --epochs; `skyward run --help` lists them."),
        (["up", "a", "b"], "skyward up: takes the name of a pool: `skyward up train --nodes 2 --gpu A100`."),
        (["exec", "k2", "echo", "a b"], "skyward exec: takes COMMAND after `--`: end the line with `-- echo 'a b'`."),
        (["run", "args.py", "--pool", "k2", "3"], "skyward run: takes ARGS after `--`: end the line with `-- 3`."),
        (["exec"], "skyward exec: takes the name of a pool: `skyward exec train -- nvidia-smi`."),
        (
            ["volume", "ls", "./"],
            "skyward volume: './' is no place in a bucket: write s3://BUCKET/KEY, or NAME://BUCKET/KEY for ",
        ),
        (
            ["doctor", "local"],
            "skyward doctor: 'local' is no provider with credentials that could be checked. Those are aws, ",
        ),
        (
            ["doctor", "awz"],
            "skyward doctor: 'awz' is no provider with credentials that could be checked; did you mean ",
        ),
        (["completion", "csh"], "skyward completion: There is no completion for 'csh': write bash, zsh or fish."),
    ],
)
def test_wrong_words_are_refused_in_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(sentence)
    assert err.count("\n") == 1


def test_words_after_two_dashes_are_passed_on() -> None:
    from skyward.cli.main import _split

    run = OF_COMMAND_LINE["run"]
    given, rest = _split(["a.py", "--nodes", "2", "--", "--nodes", "--", "x y"], run)
    assert (given, rest) == (["a.py", "--nodes", "2"], ["--nodes", "--", "x y"])
    parsed: dict[str, Any] = dict(parse(run, given, "skyward"))
    assert parsed["script"] == "a.py"
    assert str(parsed["options"]["nodes"].min) == "2"


def test_version_names_the_distribution_and_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    import skyward

    assert main(["--version"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("skyward-jupyter ")
    assert out.endswith(f" from {Path(skyward.__file__).parent}\n")


@pytest.mark.parametrize(
    ("before", "begun", "words"),
    [
        ([], "re", ["reap"]),
        ([], "im", ["image"]),
        (["image"], "b", ["build"]),
        (["run"], "", [FILES]),
        (["run"], "--nod", ["--nodes"]),
        (["run", "x.py"], "--arch=a", ["--arch=arm64"]),
        (["run", "x.py", "--arch"], "x", ["x86_64"]),
        (["run", "x.py", "--plugin"], "tor", ["torch"]),
        (["run", "x.py", "--policy"], "adap", ["adaptive"]),
        (["run", "x.py", "--file"], "", [FILES]),
        (["run", "x.py", "--"], "", [FILES]),
        (["doctor"], "run", ["runpod"]),
        (["completion"], "f", ["fish"]),
        (["nothing"], "", []),
    ],
)
def test_words_are_completed(before: list[str], begun: str, words: list[str]) -> None:
    assert offered(before, begun) == words


def test_help_of_the_simulator_has_sections() -> None:
    text = help_of("skyward", OF_COMMAND_LINE["simulate"])
    assert "\nsettings of the pool:\n" in text
