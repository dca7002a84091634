"""Parsers of the lines of `%%sky`, `%sky!` and `%sky up`."""

import argparse
import re
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn

from skyward.errors import ProviderMissingError, SpecError, UsageError
from skyward.specs import Needs
from skyward.values.validation import FrozenMap
from skyward_jupyter.options.option_table import OPTIONS, Option
from skyward_jupyter.options.underline import OptionError, split_line
from skyward_kernel.pools import compute_fields

if TYPE_CHECKING:
    from skyward.pool.compute import On

__all__ = ["CellOptions", "parse_cell", "parse_words", "split_expression"]

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
    words, given, asked = _parse(split_line(line), OPTIONS, "%%sky")
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
            raise _unknown(found["flag"], OPTIONS, "%sky!")
        place = found.end()
        if option.metavar and not found["value"] and (value := _WORD.match(line, place)) is not None:
            place = value.end()
    return line[:place].strip(), line[place:].strip()


def parse_words(
    words: Sequence[str], command: str, options: Sequence[Option]
) -> tuple[list[str], dict[str, Any], Mapping[str, Any]]:
    """Parse `%sky COMMAND ...` into positional words, values of cell options, and requested properties of the pool.

    Raises:
        UsageError: as for `parse_cell`.
    """
    return _parse(words, options, f"%sky {command}")


class _Parser(argparse.ArgumentParser):
    """Parser of words into lists of texts, which the option table interprets."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


_parsing = Lock()


@cache
def _parser(options: tuple[tuple[str, bool, *tuple[str, ...]], ...]) -> _Parser:
    """Make a parser of options, each given by its target, whether it takes a value, and its flags. Takes 1 ms."""
    parser = _Parser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for target, takes_value, *flags in options:
        action: dict[str, Any] = {"action": "append"} if takes_value else {"action": "append_const", "const": ""}
        parser.add_argument(*flags, dest=target, **action)
    parser.add_argument("words", nargs="*")
    return parser


def _parse(
    words: Sequence[str], options: Sequence[Option], command: str
) -> tuple[list[str], dict[str, Any], Mapping[str, Any]]:
    try:
        with _parsing:  # a parser is not thread-safe
            parser = _parser(tuple((option.target, bool(option.metavar), *option.flags) for option in options))
            found, left = parser.parse_known_intermixed_args(list(words))
    except argparse.ArgumentError as error:
        raise _no_value(error.argument_name or "", options) from None
    for word in left:
        if word.startswith("-"):
            raise _unknown(word, options, command)
    given: dict[str, Any] = {}
    asked: dict[str, Any] = {}
    for option in options:
        texts: list[str] | None = getattr(found, option.target)
        if texts is not None:
            (asked if option.group == "pool" else given)[option.target] = _value(option, texts)
    return [*found.words, *left], given, FrozenMap(asked)


def _value(option: Option, texts: Sequence[str]) -> Any:
    if option.merge is not None:
        return option.merge([_read(option, text) for text in texts])
    if option.metavar and len(texts) > 1:
        raise OptionError(f"{option.name} is given {len(texts)} times: keep one of them.", option.flags, texts)
    return _read(option, texts[0]) if option.metavar else option.constant


def _read(option: Option, text: str) -> Any:
    try:
        value = option.read(text)
    except (ProviderMissingError, SpecError) as error:
        raise OptionError(f"{option.name} {text}: {error}", option.flags, [text]) from None
    except ValueError:
        value = None
    if value is None or (isinstance(value, Sized) and not value):
        # The value of an environment variable may be a secret, so it is not shown.
        shown = repr(text.partition("=")[0] if option.target == "image.env" else text)
        raise OptionError(f"{option.name} takes {option.takes}, but got {shown}.", option.flags, [text])
    return value


def _no_value(flag: str, options: Sequence[Option]) -> UsageError:
    option = next(option for option in options if flag.split("/")[0] in option.flags)
    if not option.metavar:
        return OptionError(f"{option.name} takes no value.", option.flags)
    return OptionError(f"{option.name} needs a value: {option.takes}.", option.flags)


def _unknown(word: str, options: Sequence[Option], command: str) -> UsageError:
    flag = word.partition("=")[0]
    if any(flag in option.flags for option in OPTIONS):
        return OptionError(f"{flag} is an option of %%sky, and {command} does not take it: leave it out.", [flag])
    known = {name.lstrip("-"): name for option in options for name in option.flags}
    close = get_close_matches(flag.lstrip("-"), known, n=1, cutoff=0.7)
    close = close or [name for name in known if len(flag) > 3 and name.startswith(flag.lstrip("-"))]
    if close:
        return OptionError(f"{command} has no option {flag}; did you mean {known[close[0]]}?", [flag])
    return OptionError(f"{command} has no option {flag}; `%sky help` lists them.", [flag])


def _compatible(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that do not contradict the given options."""
    kept = {name: value for name, value in defaults.items() if name not in given}
    if given.keys() & {"map", "resources", "capabilities", "local"}:
        kept.pop("on", None)
    where = CellOptions(on=given.get("on", kept.get("on", "one")))
    if not where.on_several:
        kept.pop("by_node", None)
    if not {**kept, **given}.get("keep"):
        kept.pop("keep_for", None)
    return kept


def _check_local(given: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Reject options that do not apply to a cell that runs in the notebook; those about machines are allowed."""
    for option in OPTIONS:
        on_node = option.target.startswith("image.") if option.group == "pool" else option.target not in _LOCAL
        if on_node and option.target in {**given, **asked}:
            text = f"{option.name} is for cells that run on nodes, and --local runs this one here: leave one out."
            raise OptionError(text, ["--local", *option.flags])


def _check_together(options: CellOptions) -> None:
    """Reject options that contradict each other."""
    if options.map is not None and options.on != "one":
        text = "--map spreads the elements over the nodes, so it cannot be combined with --on: leave one out."
        raise OptionError(text, ["--map", "--on"], [options.map, str(options.on)])
    if options.needs and options.on != "one":
        asks = "--resources" if options.resources else "--capabilities"
        text = f"{asks} asks for any node that fits, so it cannot be combined with --on: leave one out."
        raise OptionError(text, [asks, "--on"], [str(options.on)])
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
