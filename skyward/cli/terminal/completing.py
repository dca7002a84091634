"""Completion of words by bash, zsh and fish: a script for each, and the command that such a script asks.

The words come from the table of commands; names of pools come from the journal and from skyward.toml.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from skyward.commands.table.every_command import OF_COMMAND_LINE
from skyward.commands.words import Values, complete_command
from skyward.errors import SkywardError, SpecError

__all__ = ["FILES", "complete", "completion", "offered"]

FILES: Final = "__files"
"""Answer that asks the shell for the names of files."""

_PATHS: Final = ("file", "files", "sync", "fetch", "trace", "replay", "plot", "requirements", "decision_log")
"""Kinds of arguments and targets of options whose values are paths."""

_SCRIPTS: Final = {
    "bash": """\
_skyward() {
    local IFS=$'\\n' word=${COMP_WORDS[COMP_CWORD]} words
    words=$("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return
    if [ "$words" = __files ]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$word"))
    else
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    fi
}
complete -F _skyward skyward sky
""",
    "zsh": """\
#compdef skyward sky
_skyward() {
    local -a found
    found=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ "${found[1]}" == __files ]]; then
        _files
    else
        compadd -a found
    fi
}
if ! whence compdef >/dev/null; then autoload -Uz compinit && compinit; fi
compdef _skyward skyward sky
""",
    "fish": """\
function __skyward_complete
    set -l words (commandline -opc)
    set -l found ($words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null)
    if test "$found[1]" = __files
        __fish_complete_path (commandline -ct)
    else
        string join \\n -- $found
    end
end
complete -c skyward -f -a '(__skyward_complete)'
complete -c sky -f -a '(__skyward_complete)'
""",
}


def completion(*, shell: str) -> int:
    """Print the script of a shell.

    Raises:
        SpecError: there is none for this shell.
    """
    if shell not in _SCRIPTS:
        raise SpecError(f"There is no completion for {shell!r}: write bash, zsh or fish.")
    sys.stdout.write(_SCRIPTS[shell])
    return 0


def complete(words: Sequence[str]) -> int:
    """Print the words that may follow, one on each line; the last of `words` is the one that is being typed."""
    *before, begun = words or [""]
    found = offered(before, begun)
    sys.stdout.write("".join(f"{word}\n" for word in found))
    return 0


def offered(before: Sequence[str], begun: str) -> list[str]:
    """Return the words that may follow `before` and begin with `begun`; `FILES` for the names of files."""
    if "--" in before:
        return [FILES]
    if begun.startswith("--") and "=" in begun:
        flag, _, begun = begun.partition("=")
        return [f"{flag}={word}" for word in offered([*before, flag], begun) if word != FILES]
    names = _names(before, begun)
    if names is not None:
        return names
    count = 2 if " ".join(before[:2]) in OF_COMMAND_LINE else 1
    command = OF_COMMAND_LINE.get(" ".join(before[:count]))
    if command is None:
        return []
    rest = "".join(f"{word.replace(' ', '_') or '_'} " for word in before[count:]) + begun
    found = list(dict.fromkeys(complete_command(command, rest, _values())))
    if FILES in found and not begun.startswith("-"):
        return [FILES]
    matching = [word for word in found if word.startswith(begun) and word != FILES]
    options = [word for word in matching if word.startswith("--")]
    return (
        matching
        if begun.startswith("-") or len(options) == len(matching)
        else [word for word in matching if word not in options]
    )


def _names(before: Sequence[str], begun: str) -> list[str] | None:
    """Return the names of commands that may follow; None once there is one."""
    if not before:
        first = dict.fromkeys(name.partition(" ")[0] for name in OF_COMMAND_LINE)
        return [name for name in (*first, "help", "--help", "--version") if name.startswith(begun)]
    if before == ["help"]:
        return _names([], begun)
    actions = [name.partition(" ")[2] for name in OF_COMMAND_LINE if name.startswith(f"{before[0]} ")]
    if actions and len(before) == 1:
        return [name for name in actions if name.startswith(begun)]
    return None


def _values() -> Values:
    """Return the functions that list the values of arguments by kind, and of options by target."""
    return {
        "pool": _here(_pools),
        "orphan": _here(_pools),
        "image": _here(_images),
        "provider": _here(_providers),
        "accelerator": _here(_accelerators),
        "policy": _here(_policies),
        "plugins": _here(_plugins),
        "shell": lambda _: _SCRIPTS,
        "place": _here(_places),
        **dict.fromkeys(_PATHS, lambda _: [FILES]),
    }


def _here(names: Callable[[], Iterable[str]]) -> Callable[[str], Iterable[str]]:
    """Return a function that lists names; none where they cannot be known, which the command itself explains."""

    def listed(_: str) -> Iterable[str]:
        with suppress(SkywardError):
            return names()
        return ()

    return listed


def _pools() -> Iterable[str]:
    from skyward.config import load
    from skyward.journal import Journal

    with Journal() as journal:
        recorded = [entry.name for entry in journal.pools() if not journal.warm.is_resting(entry.id)]
    return dict.fromkeys((*recorded, *load().pools))


def _images() -> Iterable[str]:
    from skyward.journal import ImageRecords

    return [record.image.id for record in ImageRecords().all()]


def _providers() -> Iterable[str]:
    from skyward.config import load
    from skyward.providers.protocol import provider_names

    return dict.fromkeys((*load().providers, *provider_names()))


def _accelerators() -> Iterable[str]:
    from skyward.accelerators import names

    return names()


def _policies() -> Iterable[str]:
    from skyward.scaling.registry import POLICIES

    return POLICIES


def _places() -> Iterable[str]:
    from skyward.config import load

    return [f"{name}://" for name in dict.fromkeys(("s3", "gs", *load().storages))]


def _plugins() -> Iterable[str]:
    from skyward.plugins.registry import plugin_names

    return plugin_names()
