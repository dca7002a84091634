"""Pools of the command line, made from options and the user's files."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyward.errors import SpecError

if TYPE_CHECKING:
    from skyward.pool.compute import Compute

__all__ = ["make_pool"]


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
    from skyward.config.pools import LOCAL

    config = load()

    def outliving(provider: Any) -> object:
        settings: Any = config.provider(provider or LOCAL) if isinstance(provider, str | None) else provider
        return replace(settings, outlives=True) if getattr(settings, "outlives", None) is False else settings

    given = fields.get("provider")
    changed = tuple(map(outliving, given)) if isinstance(given, tuple | list) else outliving(given)
    return {**fields, "provider": changed}
