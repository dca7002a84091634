"""Parsers of the lines of `%%sky` and `%sky!`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skyward.frontends.commands import POOL_LABELS, OptionError, parse_options, split_line, unknown_option
from skyward.frontends.configuration import FrozenMap, Needs, compute_fields
from skyward_jupyter.options.option_table import OPTIONS

if TYPE_CHECKING:
    from skyward.frontends.configuration import GangPlacement
    from skyward.frontends.pools import On

__all__ = ["CellOptions", "parse_cell", "split_expression"]

_LOCAL = frozenset({"local", "map", "pool", "footer", "quiet", "help"})
"""Options of cells that may be combined with `--local`."""

_FLAG = re.compile(r"\s*(?P<flag>--?[A-Za-z][\w-]*)(?P<value>=(?:\"[^\"]*\"|'[^']*'|\S)+)?(?=\s|$)")
_WORD = re.compile(r"\s*(?:\"[^\"]*\"|'[^']*'|\S)+")


_EXCLUDES = "image.excludes"


@dataclass(frozen=True, slots=True)
class CellOptions:
    """The options of a cell. Fields that were not given have their default.

    Attributes:
        pool: name of the pool.
        asked: requested properties of the pool: dotted path of a field of `Compute` to its value.
        on: the nodes to run on.
        map: name of the variable for whose elements the cell runs.
        gang: how often the cell runs, all at once or not at all; None for once, alone.
        placement: how the runs of a gang are spread over the nodes; None for the default.
        by_node: whether each node has a section of the output.
        plot: whether the yielded numbers are drawn.
        noblock: whether to return at once.
        resources, capabilities: requirements on the node.
        retries: how often a run that raises is retried.
        timeout: seconds that the cell may run; None for no limit.
        inputs, outputs: the only variables to send and to return; None for all.
        keep: variables whose values stay on their node after the cell.
        keep_for: seconds after their last use in which the node is not scaled down; None for the default.
        capture: whether variables are sent.
        capture_limit: maximum size of the variables, bytes; None for the configured limit.
        files, sync, fetch: files to send, folders to mirror, patterns of files to copy back.
        excludes: patterns of files that are left out of the synced folders.
        file_limit: maximum size of the files in each direction, bytes; None for the default.
        footer: whether to show where the cell ran and what it cost.
        local: whether the cell runs in the notebook itself.
    """

    pool: str = "default"
    asked: Mapping[str, Any] = field(default_factory=FrozenMap)
    on: "On" = "one"
    map: str | None = None
    gang: int | None = None
    placement: "GangPlacement | None" = None
    by_node: bool = False
    plot: bool = False
    noblock: bool = False
    resources: Mapping[str, float] = field(default_factory=FrozenMap)
    capabilities: frozenset[str] = frozenset()
    retries: int = 0
    timeout: float | None = None
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    keep: tuple[str, ...] = ()
    keep_for: float | None = None
    capture: bool = True
    capture_limit: int | None = None
    files: tuple[str, ...] = ()
    sync: tuple[str, ...] = ()
    fetch: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    file_limit: int | None = None
    dry_run: bool = False
    footer: bool = True
    quiet: bool = False
    local: bool = False
    help: bool = False

    @property
    def on_several(self) -> bool:
        """True if the cell runs on several nodes, so that its variables become lists."""
        return not isinstance(self.on, int) and self.on not in ("one", "head")

    @property
    def needs(self) -> Needs:
        """The requirements of the cell on its node."""
        return Needs(self.resources, self.capabilities)

    def spec_fields(self) -> dict[str, Any]:
        """Return the keywords for `Compute` that were given, and no others."""
        return compute_fields(self.asked)


def parse_cell(line: str, defaults: Mapping[str, Any] = FrozenMap()) -> CellOptions:
    """Parse a line `%%sky ...`; `defaults` has default values of fields of `CellOptions`.

    Raises:
        UsageError: an option is unknown, lacks a value, has a wrong one, is repeated, or contradicts another.
    """
    words, given, asked = _parse_cell_words(line)
    if words:
        text = f"%%sky takes options only, but got {words[0]!r}: the code of the cell goes on the lines below."
        raise OptionError(text, words[:1])
    if "sync" in given and (excludes := asked.get(_EXCLUDES)):
        given["excludes"] = excludes
        if "image.includes" not in asked:  # the patterns apply to the synced folders only
            asked = FrozenMap({path: value for path, value in asked.items() if path != _EXCLUDES})
    if given.get("local"):
        _check_local(given, asked)
    options = CellOptions(asked=asked, **{**_compatible(defaults, given), **given})
    _check_together(options)
    return options


def split_expression(line: str) -> tuple[str, str]:
    """Split a line into its options and the expression: `--on all 2 + x` into `--on all` and `2 + x`.

    A word that begins with a single `-` and is not an option belongs to the expression.

    Raises:
        UsageError: there is no expression, or an option is unknown.
    """
    place = 0
    while (found := _FLAG.match(line, place)) is not None:
        option = next((each for each in OPTIONS if found["flag"] in each.flags), None)
        if option is None and not found["flag"].startswith("--"):
            break
        if option is None:
            raise unknown_option(found["flag"], OPTIONS, "%sky!", OPTIONS)
        place = found.end()
        if option.metavar and not found["value"] and (value := _WORD.match(line, place)) is not None:
            place = value.end()
    return line[:place].strip(), line[place:].strip()


def _parse_cell_words(line: str) -> tuple[list[str], dict[str, Any], Mapping[str, Any]]:
    """Parse a line into positional words, values of the options of cells, and requested properties of the pool."""
    words, values = parse_options(split_line(line), OPTIONS, "%%sky")
    asked = FrozenMap({path: value for path, value in values.items() if path in POOL_LABELS})
    return words, {name: value for name, value in values.items() if name not in asked}, asked


def _compatible(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that do not contradict the given options."""
    kept = {name: value for name, value in defaults.items() if name not in given}
    if given.keys() & {"map", "gang", "resources", "capabilities", "local"}:
        kept.pop("on", None)
    where = CellOptions(on=given.get("on", kept.get("on", "one")))
    if not where.on_several:
        kept.pop("by_node", None)
    if given.keys() & {"map", "on", "local"}:
        kept.pop("gang", None)
    if not {**kept, **given}.get("gang"):
        kept.pop("placement", None)
    if not {**kept, **given}.get("keep"):
        kept.pop("keep_for", None)
    return kept


def _check_local(given: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Reject options that do not apply to a cell that runs in the notebook; those about machines are allowed."""
    for option in OPTIONS:
        on_node = option.target.startswith("image.") if option.target in POOL_LABELS else option.target not in _LOCAL
        if on_node and option.target in {**given, **asked}:
            text = f"{option.name} is for cells that run on nodes, and --local runs this one here: leave one out."
            raise OptionError(text, ["--local", *option.flags])


def _check_together(options: CellOptions) -> None:
    """Reject options that contradict each other."""
    if options.map is not None and options.on != "one":
        text = "--map spreads the elements over the nodes, so it cannot be combined with --on: leave one out."
        raise OptionError(text, ["--map", "--on"], [options.map, str(options.on)])
    if options.gang is not None and options.on != "one":
        text = "--gang finds nodes for all its runs, so it cannot be combined with --on: leave one out."
        raise OptionError(text, ["--gang", "--on"], [str(options.gang), str(options.on)])
    if options.gang is not None and options.map is not None:
        text = "--gang runs the cell at once N times and --map once per element, so leave one of them out."
        raise OptionError(text, ["--gang", "--map"], [str(options.gang), options.map])
    if options.placement is not None and options.gang is None:
        raise OptionError("--placement is about the runs of --gang: write --gang N too.", ["--placement"])
    if options.needs and options.on != "one":
        asks = "--resources" if options.resources else "--capabilities"
        text = f"{asks} asks for any node that fits, so it cannot be combined with --on: leave one out."
        raise OptionError(text, [asks, "--on"], [str(options.on)])
    if options.by_node and options.gang is not None:
        text = "--by-node needs --on all, which cannot be combined with --gang: leave out --by-node."
        raise OptionError(text, ["--by-node", "--gang"], [str(options.gang)])
    if options.by_node and options.map is not None:
        text = "--by-node needs --on all, which cannot be combined with --map: leave out --by-node."
        raise OptionError(text, ["--by-node", "--map"], [options.map])
    if options.by_node and not options.on_several:
        text = "--by-node is about the output of several nodes: write --on all too, or leave it out."
        raise OptionError(text, ["--by-node"])
    if not options.capture and options.inputs is not None:
        text = "-i sends variables and --no-capture sends none: leave one of them out."
        raise OptionError(text, ["-i", "--in", "--no-capture"])
    if options.keep_for is not None and not options.keep:
        raise OptionError("--keep-for is how long --keep protects its node: write --keep NAMES too.", ["--keep-for"])
    if options.noblock and options.dry_run:
        text = "--dry-run runs nothing, so there is nothing for --noblock: leave one of them out."
        raise OptionError(text, ["--dry-run", "--noblock"])
