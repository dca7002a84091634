"""Pools of the command line: made from options and the user's files, or attached to."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyward.errors import SpecError

if TYPE_CHECKING:
    from skyward.pool.compute import Compute

__all__ = ["lease_text", "make_pool"]


def make_pool(name: str, options: Mapping[str, Any], *, outlives: bool = False) -> "Compute":
    """Return a pool that is not open yet, from options by path, the table `[pools.NAME]` and `[defaults]`.

    Args:
        outlives: let nodes on this computer outlive this process, as those of a cloud do.

    Raises:
        SpecError: an option or a value of a file is wrong.
        CredentialsError: no cloud has credentials.
    """
    from skyward.config.pools import configured_values
    from skyward.pool.account.clouds import pool_fields
    from skyward.pool.compute import Compute

    if (log := options.get("decision_log")) is not None:
        _check_decision_log(Path(log).expanduser())
    fields = pool_fields({**configured_values(name), **options})
    if outlives:
        fields = _outliving(fields)
    return Compute(name=name, **fields)


def _check_decision_log(path: Path) -> None:
    """Check that a decision log can be appended to.

    Raises:
        SpecError: it is a folder, its folder does not exist, or it may not be written.
    """
    if path.is_dir():
        why = "it is a folder: name a file in it."
    elif not path.parent.is_dir():
        why = f"there is no folder {path.parent}: create it, or name another file."
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "it may not be written: name another file."
    else:
        return
    raise SpecError(f"--decision-log {path}: {why}")


def _outliving(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a pool with local nodes that outlive this process."""
    from skyward.config import load

    config = load()
    given = fields.get("provider")
    several = given if isinstance(given, tuple | list) else (given,)
    changed = []
    for each in several:
        settings: Any = config.provider(each or "local") if each is None or isinstance(each, str) else each
        is_here = getattr(settings, "outlives", None) is False
        changed.append(replace(settings, outlives=True) if is_here else settings)
    return {**fields, "provider": tuple(changed) if isinstance(given, tuple | list) else changed[0]}


def lease_text(pool: "Compute") -> str:
    """Return how long the nodes of a pool outlive this process: `for 10 min`."""
    from skyward.formatting import duration_text

    if pool.is_open:
        return f"for {duration_text(pool.snapshot().lease)}"
    return f"for {duration_text(max(spec.ttl for specs in pool.groups.values() for spec in specs))}"
