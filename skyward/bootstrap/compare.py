"""Differences between this process and a node, for the modules that a payload uses."""

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
    """Reports each difference once.

    Args:
        facts: facts of the node's environment.
        where: name of the node in sentences.
        local_versions: version by normalised name of the packages that are installed here; read from their
            metadata if None.
    """

    def __init__(self, facts: Facts, where: str = "the node", local_versions: Mapping[str, str] | None = None) -> None:
        self._facts = facts
        self._where = where
        self._local_versions = local_versions
        self._reported: set[str] = set()

    def at_join(self) -> list[str]:
        """Return one sentence if the node runs another minor version of Python."""
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        theirs = ".".join(self._facts.python.split(".")[:2])
        if ours == theirs:
            return []
        return [
            f"{self._where} runs Python {self._facts.python} and this process {_python()}: functions and classes "
            f'defined here may not run there; keep Image(python="auto"), or use Python {theirs} here.'
        ]

    def differing(self) -> dict[str, frozenset[str]]:
        """Return the distributions that both have in different minor versions, with the top-level modules of each."""
        found: dict[str, set[str]] = {}
        for top, names in _known().items():
            for name in map(normalised, names):
                ours, theirs = self._version_here(name), self._facts.packages.get(name)
                if ours is not None and theirs is not None and _minor_version(ours) != _minor_version(theirs):
                    found.setdefault(name, set()).add(top)
        return {name: frozenset(tops) for name, tops in found.items()}

    def of(self, modules: Iterable[str]) -> list[str]:
        """Return one sentence for each distribution of `modules` that the node lacks, or has in another version."""
        return [sentence for name in distributions_of(modules) for sentence in self._of(name)]

    def _of(self, name: str) -> Iterator[str]:
        if name in self._reported:
            return
        ours, theirs = self._version_here(name), self._facts.packages.get(name)
        if ours is None or (theirs is not None and _minor_version(ours) == _minor_version(theirs)):
            return
        self._reported.add(name)
        if theirs is None:
            yield f"{name} {ours} is used here and is not installed on {self._where}; add it with `--pip {name}`."
        else:
            same = f"{name}=={ours.partition('+')[0]}"
            fix = f'`Image(pip=["{same}"])` or `--pip {same}`'
            yield f"{self._where} has {name} {theirs} and this process {ours}; {fix} makes them the same."

    def _version_here(self, name: str) -> str | None:
        if self._local_versions is not None:
            return self._local_versions.get(name)
        try:
            return version(name)
        except PackageNotFoundError:
            return None


def modules_in(data: bytes | bytearray | memoryview) -> set[str]:
    """Return the modules that a pickle refers to by name. Nothing is loaded; other data refers to none."""
    modules: set[str] = set()
    memo: dict[int, str] = {}
    last = before = ""  # the last two strings pushed; "" for any other object
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
    """Return every string in a pickle, up to its first dot: among them the imports of its functions."""
    words: set[str] = set()
    with contextlib.suppress(ValueError):  # not a pickle, or a truncated one
        for _, argument, _ in pickletools.genops(bytes(data)):
            if isinstance(argument, str):
                words.update(part.partition(".")[0] for part in argument.split(" ", 1))
    return words


def _named(module: str, name: str) -> str:
    """Return a marker for cloudpickle's own reference to a module; "" for any other reference."""
    return _SUBIMPORT if (module, name) == ("cloudpickle.cloudpickle", "subimport") else ""


def distributions_of(modules: Iterable[str]) -> list[str]:
    """Return the sorted, normalised names of the distributions that provide `modules`. Other modules are ignored."""
    known = _known()
    tops = {module.partition(".")[0] for module in modules} - sys.stdlib_module_names
    return sorted({normalised(name) for top in tops for name in known.get(top, ())})


@cache
def _known() -> Mapping[str, Sequence[str]]:
    return packages_distributions()


def _minor_version(text: str) -> tuple[str, ...]:
    """Return the major and minor version: versions that share them count as equal."""
    return tuple(text.partition("+")[0].split(".")[:2])


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))
