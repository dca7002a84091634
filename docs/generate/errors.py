"""The tree of errors, with their sentences and what each is caught as."""

import builtins
import inspect
from collections.abc import Iterator

import skyward as sky
from docs.generate.markdown import table

__all__ = ["error_table"]


def error_table() -> str:
    """Return a table of all errors in the order of the tree, with the builtin errors that catch them too."""
    return table(("error", "meaning", "also caught as"), _rows(sky.SkywardError, 0))


def _rows(error: type, depth: int) -> Iterator[tuple[str, str, str]]:
    sentence = (inspect.getdoc(error) or "").partition("\n\n")[0].replace("\n", " ")
    indent = "&emsp;" * depth
    also = [base.__name__ for base in error.__bases__ if getattr(builtins, base.__name__, None) is base]
    also += [base.__name__ for base in error.__bases__ if base.__module__.startswith("concurrent.")]
    shown = ", ".join(f"`{name}`" for name in also if name != "Exception")
    yield f"{indent}{{py:exc}}`~skyward.{error.__name__}`", sentence.replace("``", "`"), shown
    public = [getattr(sky, name) for name in sky.errors.__all__]
    for child in public:
        if error is child.__bases__[0]:
            yield from _rows(child, depth + 1)
