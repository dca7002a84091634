"""Helpers that run in a kernel: store the names of one run, and compare those of the next run with them."""

import json
from collections.abc import Mapping
from typing import Any

from tests.corpus.compare import Names, compare
from tests.corpus.harness import world

__all__ = ["keep", "report"]

_kept: list[Names] = []


def keep(namespace: Mapping[str, Any], place: str) -> None:
    """Store the names of the run in the notebook."""
    _kept[:] = [Names.of(namespace, world(place), place)]


def report(namespace: Mapping[str, Any], place: str) -> str:
    """Return the differences from the stored names as JSON: for each, the names that it concerns, and its text."""
    found = compare(Names.of(namespace, world(place), place), _kept.pop())
    return json.dumps([[sorted(difference.roots), difference.text] for difference in found])
