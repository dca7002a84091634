"""What a kernel does for the tests: it keeps the names of one run, and compares those of the next one with them."""

import json
from collections.abc import Mapping
from typing import Any

from tests.corpus.compare import Names, compare
from tests.corpus.harness import world

__all__ = ["keep", "report"]

_kept: list[Names] = []


def keep(namespace: Mapping[str, Any], place: str) -> None:
    """Keep the names of the run in the notebook."""
    _kept[:] = [Names.of(namespace, world(place), place)]


def report(namespace: Mapping[str, Any], place: str) -> str:
    """The differences of the names from the kept ones, as JSON: of each the names that it is about, and its text."""
    found = compare(Names.of(namespace, world(place), place), _kept.pop())
    return json.dumps([[sorted(difference.roots), difference.text] for difference in found])
