"""The places of API keys."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from skyward.values.validation import Secret

__all__ = ["find_api_key"]

type KeyReader = Callable[[str], str | None]
"""Returns the API key in the text of a file; None or "" if it has none. Raises `ValueError` if it has another form."""


def find_api_key(given: str | None, variable: str, files: Mapping[Path, KeyReader] | None = None) -> tuple[str, Secret]:
    """Return the place of an API key and the key; empty strings if there is none.

    Args:
        given: the key of the settings.
        variable: environment variable that may have it.
        files: files of the vendor that may have it, each with how it is read; the first one counts.
    """
    if given is not None:
        return "the settings", Secret(given)
    if key := os.environ.get(variable, "").strip():
        return f"environment variable {variable}", Secret(key)
    for file, read in (files or {}).items():
        path = file.expanduser()
        try:
            found = read(path.read_text())
        except (OSError, ValueError):
            continue
        if isinstance(found, str) and found.strip():
            return str(path), Secret(found.strip())
    return "", Secret("")
