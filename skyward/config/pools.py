"""What the user's files make of a pool, for those who open it."""

from collections.abc import Mapping, Sequence
from typing import Any

from skyward.config.merged import load
from skyward.specs import OptionFields
from skyward.specs.paths import compute_fields

__all__ = ["configured", "configured_values"]


def configured_values(name: str) -> dict[str, Any]:
    """By path, what the files say that a pool of cells has, that of `[defaults]` included.

    Raises:
        SpecError: a file, a key or a value is wrong.
    """
    return {path: found.value for path, found in load().pool(name).items()}


def configured(name: str | None, specs: Sequence[object], options: object, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of `Compute` with what the `[pools.NAME]` table of its name says beside them.

    Specs, groups and options that are given are taken as they are. A pool whose name has no table stays as it is, too:
    `[defaults]` are for cells, and a script says what it wants.

    Raises:
        SpecError: a file, a key or a value is wrong.
    """
    if name is None or specs or "groups" in fields:
        return dict(fields)
    config = load()
    if name not in config.pools:
        return dict(fields)
    found = compute_fields({path: each.value for path, each in config.pool(name).items()})
    if options is not None:
        found = {field: value for field, value in found.items() if field not in OptionFields.__optional_keys__}
    return {**found, **fields}
