"""Parsing of the options of `%%sky`, and its error messages."""

from typing import Any

import pytest

from skyward.accelerators import parse_accelerator
from skyward.commands.option import explain
from skyward.commands.underline import split_line
from skyward.commands.words import parse
from skyward.errors import UsageError
from skyward.specs import NOTHING, Image, Needs, Nodes, Worker
from skyward.specs.image import DEFAULT_EXCLUDES
from skyward_jupyter.options.cell_options import CellOptions, parse_cell, split_expression
from skyward_jupyter.options.option_table import OPTIONS
from skyward_kernel.commands.registry import COMMANDS
from skyward_providers.local import Local

pytestmark = pytest.mark.unit

PLACES = "one, all, head, ranks such as 3, 0,2 or 0:4 (4 excluded), or the name of a group"


def test_empty_line_has_the_defaults() -> None:
    assert parse_cell("") == CellOptions()
    assert parse_cell("").spec_fields() == {}


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("--nodes 4", {"nodes": Nodes(4)}),
        ("--nodes 2:16", {"nodes": Nodes(2, 16)}),
        ("--nodes=3/2:16", {"nodes": Nodes(2, 16, 3)}),
        ("--provider local", {"provider": Local()}),
        ("--gpu A100:4", {"accelerator": parse_accelerator("A100:4")}),
        ("--accelerator H100", {"accelerator": parse_accelerator("H100")}),
        ("--vcpus 8", {"vcpus": 8}),
        ("--memory 32", {"memory_gb": 32}),
        ("--memory 32GB", {"memory_gb": 32}),
        ("--disk 100", {"disk_gb": 100}),
        ("--arch arm64", {"architecture": "arm64"}),
        ("--allocation on-demand", {"allocation": "on-demand"}),
        ("--region eu-west-1", {"region": "eu-west-1"}),
        ("--max-cost 2.50", {"max_hourly_cost": 2.5}),
        ("--budget 20", {"budget": 20}),
        ("--policy pressure", {"policy": "pressure"}),
        ("--decision-log days.jsonl", {"decision_log": "days.jsonl"}),
        ("--target cheap", {"target_wait": "cheap"}),
        ("--target 10m", {"target_wait": 600}),
        ("--target 0", {"target_wait": 0}),
        ("--waiting-cost 2.5", {"waiting_cost": 2.5}),
        ("--consolidate-within 5m", {"consolidate_within": 300}),
        ("--consolidate-within 0", {"consolidate_within": 0}),
        ("--ttl 10m", {"ttl": 600}),
        ("--ttl 0", {"ttl": 0}),
        ("--pip numpy,torch --pip pandas", {"image": Image(pip=["numpy", "torch", "pandas"])}),
        ("--pip 'torch>=2,<3' --pip 'x[a,b]==1,y'", {"image": Image(pip=["torch>=2,<3", "x[a,b]==1", "y"])}),
        ("--apt ffmpeg,git", {"image": Image(apt=["ffmpeg", "git"])}),
        ("--python 3.13", {"image": Image(python="3.13")}),
        ("--env A=1 --env 'B=x y=z' --env C=", {"image": Image(env={"A": "1", "B": "x y=z", "C": ""})}),
        ("--include ./lib --include tool.py", {"image": Image(includes=["./lib", "tool.py"])}),
        ("--exclude '*.csv'", {"image": Image(excludes=[*DEFAULT_EXCLUDES, "*.csv"])}),
        ("--concurrency 2", {"worker": Worker(concurrency=2)}),
        ("--executor process", {"worker": Worker(executor="process")}),
        ("--concurrency 2 --executor thread", {"worker": Worker(2, "thread")}),
    ],
)
def test_pool_options_are_parsed(line: str, fields: dict[str, Any]) -> None:
    assert parse_cell(line).spec_fields() == fields


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("--pool train", "pool", "train"),
        ("--on one", "on", "one"),
        ("--on all", "on", "all"),
        ("--on head", "on", "head"),
        ("--on 3", "on", 3),
        ("--on 0", "on", 0),
        ("--on 2,0", "on", (0, 2)),
        ("--on 0:3", "on", (0, 1, 2)),
        ("--on 5,0:2", "on", (0, 1, 5)),
        ("--on 2:3", "on", (2,)),
        ("--on gpu", "on", "gpu"),
        ("--on ALL", "on", "all"),
        ("--map xs", "map", "xs"),
        ("--gang 4", "gang", 4),
        ("--gang 4 --placement strict_pack", "placement", "strict_pack"),
        ("--gang 4 --placement Strict-Spread", "placement", "strict_spread"),
        ("--retries 2", "retries", 2),
        ("--retries 0", "retries", 0),
        ("--local", "local", True),
        ("--resources CPU=4,GPU=0.5", "resources", {"CPU": 4, "GPU": 0.5}),
        ("--resources ' GPU = 1 '", "resources", {"GPU": 1}),
        ("--capabilities gpu,HighMem", "capabilities", {"gpu", "highmem"}),
        ("--noblock", "noblock", True),
        ("--timeout 90", "timeout", 90.0),
        ("--timeout 90s", "timeout", 90.0),
        ("--timeout 5m", "timeout", 300.0),
        ("--timeout 1.5h", "timeout", 5400.0),
        ("-i x,y", "inputs", ("x", "y")),
        ("--in x --in y,x", "inputs", ("x", "y")),
        ("-o result", "outputs", ("result",)),
        ("--out a,b", "outputs", ("a", "b")),
        ("--no-capture", "capture", False),
        ("--capture-limit 500MB", "capture_limit", 500_000_000),
        ("--capture-limit 2GiB", "capture_limit", 2 << 30),
        ("--capture-limit 2G", "capture_limit", 2 << 30),
        ("--capture-limit 1048576", "capture_limit", 1 << 20),
        ("--file a.csv --file 'data/*.csv' --file a.csv", "files", ("a.csv", "data/*.csv")),
        ("--sync data --sync 'my project'", "sync", ("data", "my project")),
        ("--sync data --exclude '*.ckpt'", "excludes", (*DEFAULT_EXCLUDES, "*.ckpt")),
        ("--fetch 'out/*.png' --fetch model.pt", "fetch", ("out/*.png", "model.pt")),
        ("--file-limit 2GiB", "file_limit", 2 << 30),
        ("--dry-run", "dry_run", True),
        ("--quiet", "quiet", True),
        ("--help", "help", True),
        ("--noblock  # not now", "noblock", True),
    ],
)
def test_cell_options_are_parsed(line: str, field: str, value: object) -> None:
    options = parse_cell(line)
    assert getattr(options, field) == value
    assert options.spec_fields() == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--node 4", "%%sky has no option --node; did you mean --nodes?"),
        ("--gpus=A100", "%%sky has no option --gpus; did you mean --gpu?"),
        ("--concur 2", "%%sky has no option --concur; did you mean --concurrency?"),
        ("--zzz", "%%sky has no option --zzz; `%sky help` lists them."),
        ("-x", "%%sky has no option -x; `%sky help` lists them."),
        ("print(1)", "%%sky takes options only, but got 'print(1)': the code of the cell goes on the lines below."),
        ("--nodes", "--nodes needs a value: N, MIN:MAX or DESIRED/MIN:MAX, such as 4, 2:16 or 3/2:16."),
        ("--nodes --noblock", "--nodes needs a value: N, MIN:MAX or DESIRED/MIN:MAX, such as 4, 2:16 or 3/2:16."),
        ("--noblock=yes", "--noblock takes no value."),
        (
            "--nodes four",
            "--nodes four: nodes must be N, MIN:MAX or DESIRED/MIN:MAX, such as 4, 2:16 or 3/2:16, but got 'four'.",
        ),
        (
            "--nodes 8:2",
            "--nodes 8:2: the maximum, 2, is less than the minimum, 8: write 2:8.",
        ),
        (
            "--nodes 0",
            "--nodes 0: a pool without nodes has to grow: give a maximum after the minimum, such as 0:4.",
        ),
        ("--nodes 2 --nodes 4", "--nodes is given 2 times: keep one of them."),
        ("--vcpus many", "--vcpus takes a number, but got 'many'."),
        ("--vcpus 0", "--vcpus takes a number, but got '0'."),
        ("--memory 12XB", "--memory takes a number of GiB, such as 32, but got '12XB'."),
        ("--disk nan", "--disk takes a number of GiB, such as 100, but got 'nan'."),
        ("--arch sparc", "--arch takes x86_64 or arm64, but got 'sparc'."),
        ("--allocation free", "--allocation takes spot-if-available, spot, on-demand or cheapest, but got 'free'."),
        ("--region ''", "--region takes a region, but got ''."),
        ("--max-cost cheap", "--max-cost takes USD per node and hour, such as 2.50, but got 'cheap'."),
        ("--budget 0", "--budget takes USD in total, such as 20, but got '0'."),
        ("--resources GPU", "--resources takes amounts, such as CPU=4,GPU=1, but got 'GPU'."),
        ("--resources GPU=0", "--resources takes amounts, such as CPU=4,GPU=1, but got 'GPU=0'."),
        ("--resources GPU=1,GPU=2", "--resources takes amounts, such as CPU=4,GPU=1, but got 'GPU=1,GPU=2'."),
        ("--resources ,", "--resources takes amounts, such as CPU=4,GPU=1, but got ','."),
        ("--resources CPU=1 --resources GPU=1", "--resources is given 2 times: keep one of them."),
        ("--capabilities ,", "--capabilities takes names, such as gpu,highmem, but got ','."),
        (
            "--resources GPU=1 --on all",
            "--resources asks for any node that fits, so it cannot be combined with --on: leave one out.",
        ),
        (
            "--capabilities gpu --on 2",
            "--capabilities asks for any node that fits, so it cannot be combined with --on: leave one out.",
        ),
        ("--ttl soon", "--ttl takes a duration, such as 600, 10m or 1h, but got 'soon'."),
        ("--env HOME", "--env takes NAME=VALUE, but got 'HOME'."),
        ("--env 1A=secret", "--env takes NAME=VALUE, but got '1A'."),
        ("--pip ,", "--pip takes packages, such as numpy,torch, but got ','."),
        ("--concurrency 0", "--concurrency takes a positive whole number, but got '0'."),
        ("--concurrency 1.5", "--concurrency takes a positive whole number, but got '1.5'."),
        ("--executor fork", "--executor takes auto, thread or process, but got 'fork'."),
        ("--retries -1", "--retries takes a whole number, but got '-1'."),
        ("--retries 1.5", "--retries takes a whole number, but got '1.5'."),
        *(
            (
                f"--local {line}",
                f"{name} is for cells that run on nodes, and --local runs this one here: leave one out.",
            )
            for name, line in {
                "--on": "--on one",
                "--noblock": "--noblock",
                "--timeout": "--timeout 5",
                "--in": "-i x",
                "--dry-run": "--dry-run",
                "--env": "--env A=1",
                "--pip": "--pip numpy",
            }.items()
        ),
        ("--on -1", f"--on takes {PLACES}, but got '-1'."),
        ("--on 2:2", f"--on takes {PLACES}, but got '2:2'."),
        ("--on 0,x", f"--on takes {PLACES}, but got '0,x'."),
        ("--on 0:99999999999", f"--on takes {PLACES}, but got '0:99999999999'."),
        (
            "--map xs --on 0,1",
            "--map spreads the elements over the nodes, so it cannot be combined with --on: leave one out.",
        ),
        ("--gang 0", "--gang takes a positive number of runs, such as 4, but got '0'."),
        (
            "--gang 2 --placement close",
            "--placement takes pack, spread, strict_pack or strict_spread, but got 'close'.",
        ),
        ("--placement pack", "--placement is about the runs of --gang: write --gang N too."),
        (
            "--gang 2 --on all",
            "--gang finds nodes for all its runs, so it cannot be combined with --on: leave one out.",
        ),
        (
            "--gang 2 --map xs",
            "--gang runs the cell at once N times and --map once per element, so leave one of them out.",
        ),
        (
            "--gang 2 --local",
            "--gang is for cells that run on nodes, and --local runs this one here: leave one out.",
        ),
        (
            "--by-node --map xs",
            "--by-node needs --on all, which cannot be combined with --map: leave out --by-node.",
        ),
        ("--by-node --on 0", "--by-node is about the output of several nodes: write --on all too, or leave it out."),
        ("--map x.y", "--map takes the name of a variable, but got 'x.y'."),
        ("--timeout 5x", "--timeout takes a duration, such as 90, 90s, 5m or 1h, but got '5x'."),
        ("--timeout 0", "--timeout takes a duration, such as 90, 90s, 5m or 1h, but got '0'."),
        ("-i 'x y'", "--in takes names of variables, such as x,y, but got 'x y'."),
        ("-o for", "--out takes names of variables, such as x,y, but got 'for'."),
        ("--capture-limit big", "--capture-limit takes a size, such as 512MiB or 2GiB, but got 'big'."),
        (
            "--file ''",
            "--file takes a file in this folder, such as data.csv or 'data/*.csv', but got ''.",
        ),
        ("--sync", "--sync needs a value: a folder in this folder, such as data."),
        ("--pool 'a", "Unclosed quote: add ' at its end, or remove the one that opens it."),
        ("--pool \"it's", 'Unclosed quote: add " at its end, or remove the one that opens it.'),
        ("--nodes 2 \\", "The line ends with a backslash, but options must be on one line: remove it."),
        (
            "--map xs --on all",
            "--map spreads the elements over the nodes, so it cannot be combined with --on: leave one out.",
        ),
        (
            "-i x --no-capture",
            "-i sends variables and --no-capture sends none: leave one of them out.",
        ),
        (
            "--noblock --dry-run",
            "--dry-run runs nothing, so there is nothing for --noblock: leave one of them out.",
        ),
    ],
)
def test_invalid_options_are_usage_errors(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_cell(line)
    assert str(caught.value) == message


def test_exclude_of_synced_folders_does_not_apply_to_the_pool() -> None:
    assert parse_cell("--sync data --exclude '*.ckpt'").spec_fields() == {}
    both = parse_cell("--sync data --include lib --exclude '*.ckpt'")
    assert both.spec_fields() == {"image": Image(includes=["lib"], excludes=[*DEFAULT_EXCLUDES, "*.ckpt"])}
    assert both.excludes == (*DEFAULT_EXCLUDES, "*.ckpt")


def test_needs_of_a_cell() -> None:
    assert parse_cell("").needs == NOTHING
    assert parse_cell("--resources GPU=1 --capabilities gpu --map xs").needs == Needs({"GPU": 1}, {"gpu"})


@pytest.mark.parametrize("line", ["--gpu Z9000", "--provider nowhere", "--python 2.7", "--policy presure"])
def test_errors_of_other_modules_name_the_option(line: str) -> None:
    with pytest.raises(UsageError, match=f"^{line}: "):
        parse_cell(line)


def test_words_and_options_of_a_subcommand_can_be_mixed() -> None:
    given = parse(COMMANDS["up"], split_line("--nodes 2 train --gpu A100"))
    assert given == {"pool": "train", "options": {"nodes": Nodes(2), "accelerator": parse_accelerator("A100")}}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--nodes 2  # don't", ["--nodes", "2"]),
        ("--env 'A=x #y' --pool '#p' # it's", ["--env", "A=x #y", "--pool", "#p"]),
        ("# 'one", []),
        ("--env A=b#c", ["--env", "A=b#c"]),
    ],
)
def test_comment_is_stripped(line: str, words: list[str]) -> None:
    assert split_line(line) == words


def test_subcommand_rejects_options_of_cells() -> None:
    with pytest.raises(UsageError, match="^--noblock is an option of %%sky, and %sky up does not take it"):
        parse(COMMANDS["up"], ["--noblock"], elsewhere=OPTIONS)


def test_every_option_is_explained_and_flags_are_unique() -> None:
    text = explain(OPTIONS)
    flags = [flag for option in OPTIONS for flag in option.flags]
    assert len(flags) == len(set(flags))
    assert all(option.help in text and option.name in text for option in OPTIONS)
    assert all(option.takes or option.choices or not option.metavar for option in OPTIONS)


def test_local_cell_accepts_options_about_machines() -> None:
    assert parse_cell("--local --pool train --nodes 4 --gpu A100 --map xs --quiet --no-footer").local


def test_defaults_yield_to_contradicting_options() -> None:
    defaults = {"on": "all", "by_node": True, "retries": 2}
    assert parse_cell("", defaults).on == "all"
    assert parse_cell("", defaults).by_node
    for line in ("--map xs", "--gang 2", "--resources GPU=1", "--capabilities gpu", "--local", "--on 2"):
        options = parse_cell(line, defaults)
        assert not options.on_several
        assert not options.by_node
        assert options.retries == 2


@pytest.mark.parametrize(
    ("line", "options", "expression"),
    [
        ("x + 1", "", "x + 1"),
        ("--on all x + 1", "--on all", "x + 1"),
        ("--on=all -x", "--on=all", "-x"),
        ("--quiet --pool 'my pool' f(\"it's\")", "--quiet --pool 'my pool'", 'f("it\'s")'),
        ("-i x,y x + y", "-i x,y", "x + y"),
        ("-x - 1", "", "-x - 1"),
        ('{"a": n}["a"]', "", '{"a": n}["a"]'),
        ("--on all", "--on all", ""),
        ("", "", ""),
    ],
)
def test_options_before_an_expression_are_split_off(line: str, options: str, expression: str) -> None:
    assert split_expression(line) == (options, expression)


def test_unknown_option_before_an_expression_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"^%sky! has no option --onn; did you mean --on\?$"):
        split_expression("--onn all x")
