"""What differs between this process and a node, for what a payload uses."""

import contextlib
import pickletools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version

from skyward.bootstrap.events import Facts
from skyward.bootstrap.names import normalised

__all__ = ["Mismatches", "distributions_of", "modules_in", "words_in"]

_SUBIMPORT = "\0 the module named next"


class Mismatches:
    """Tells of each difference once.

    Args:
        facts: what the environment of the node is made of.
        where: how a sentence names the node.
        here: version by normalised name of what is installed here; found out where it is not given.
    """

    def __init__(self, facts: Facts, where: str = "the node", here: Mapping[str, str] | None = None) -> None:
        self._facts = facts
        self._where = where
        self._here = here
        self._told: set[str] = set()

    def at_join(self) -> list[str]:
        """One sentence if the node runs another minor version of Python."""
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        theirs = ".".join(self._facts.python.split(".")[:2])
        if ours == theirs:
            return []
        return [
            f"{self._where} runs Python {self._facts.python} and this process {_python()}: functions and classes "
            f'defined here may not run there; leave Image(python="auto"), or use Python {theirs} here.'
        ]

    def differing(self) -> dict[str, frozenset[str]]:
        """What both have, in different minor versions: by distribution, the top-level modules that it brings."""
        found: dict[str, set[str]] = {}
        for top, names in _known().items():
            for name in map(normalised, names):
                ours, theirs = self._version_here(name), self._facts.packages.get(name)
                if ours is not None and theirs is not None and _line(ours) != _line(theirs):
                    found.setdefault(name, set()).add(top)
        return {name: frozenset(tops) for name, tops in found.items()}

    def of(self, modules: Iterable[str]) -> list[str]:
        """One sentence for each distribution behind `modules` that the node lacks, or has in another minor version."""
        return [sentence for name in distributions_of(modules) for sentence in self._of(name)]

    def _of(self, name: str) -> Iterator[str]:
        if name in self._told:
            return
        ours, theirs = self._version_here(name), self._facts.packages.get(name)
        if ours is None or (theirs is not None and _line(ours) == _line(theirs)):
            return
        self._told.add(name)
        if theirs is None:
            yield f"{name} {ours} is used here and is not installed on {self._where}; add it with `--pip {name}`."
        else:
            same = f"{name}=={ours.partition('+')[0]}"
            fix = f'`Image(pip=["{same}"])` or `--pip {same}`'
            yield f"{self._where} has {name} {theirs} and this process {ours}; {fix} makes them the same."

    def _version_here(self, name: str) -> str | None:
        if self._here is not None:
            return self._here.get(name)
        try:
            return version(name)
        except PackageNotFoundError:
            return None


def modules_in(data: bytes | bytearray | memoryview) -> set[str]:
    """The modules that a pickle refers to by name. Nothing is loaded; what is no pickle refers to none."""
    modules: set[str] = set()
    memo: dict[int, str] = {}
    last = before = ""  # the strings that were pushed last; "" for anything else
    try:
        for opcode, argument, _ in pickletools.genops(bytes(data)):
            pushed = ""
            match opcode.name:
                case "MEMOIZE" | "BINPUT" | "LONG_BINPUT" | "PUT":
                    memo[len(memo) if argument is None else int(argument)] = last
                    continue
                case "BINGET" | "LONG_BINGET" | "GET":
                    pushed = memo.get(int(argument or 0), "")
                case "SHORT_BINUNICODE" | "BINUNICODE" | "BINUNICODE8" | "UNICODE":
                    pushed = str(argument)
                case "GLOBAL":
                    module, _, name = str(argument).partition(" ")
                    modules.add(module)
                    pushed = _named(module, name)
                case "STACK_GLOBAL":
                    modules.add(before)
                    pushed = _named(before, last)
            if last == _SUBIMPORT:
                modules.add(pushed)
            last, before = pushed, last
    except ValueError:
        pass
    return modules - {"", _SUBIMPORT}


def words_in(data: bytes | bytearray | memoryview) -> set[str]:
    """Every string in a pickle, up to its first dot: among them what its functions import."""
    words: set[str] = set()
    with contextlib.suppress(ValueError):  # it is no pickle, or ends early
        for _, argument, _ in pickletools.genops(bytes(data)):
            if isinstance(argument, str):
                words.update(part.partition(".")[0] for part in argument.split(" ", 1))
    return words


def _named(module: str, name: str) -> str:
    """What a reference to a function counts as: cloudpickle's own, for modules, is told from others."""
    return _SUBIMPORT if (module, name) == ("cloudpickle.cloudpickle", "subimport") else ""


def distributions_of(modules: Iterable[str]) -> list[str]:
    """The normalised names of the distributions that bring `modules`, sorted. Modules of no distribution have none."""
    known = _known()
    tops = {module.partition(".")[0] for module in modules} - sys.stdlib_module_names
    return sorted({normalised(name) for top in tops for name in known.get(top, ())})


@cache
def _known() -> Mapping[str, Sequence[str]]:
    return packages_distributions()


def _line(text: str) -> tuple[str, ...]:
    """Major and minor version: what differs past them is taken for the same."""
    return tuple(text.partition("+")[0].split(".")[:2])


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))
