"""Configuration of a pool from the user's files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from skyward.config.merged import Config, load
from skyward.providers.protocol import check_provider_name
from skyward.specs import OptionFields, Spec, Volume
from skyward.specs.paths import compute_fields

__all__ = ["LOCAL", "configured", "configured_values", "default_provider", "with_named_settings"]


LOCAL = "local"
"""Provider of the nodes of a pool that names none."""


def configured_values(name: str) -> dict[str, Any]:
    """Return the fields of a pool of cells by path, including those of `[defaults]`.

    Raises:
        SpecError: a file, a key or a value is wrong.
    """
    return {path: found.value for path, found in load().pool(name).items()}


def configured(name: str | None, specs: Sequence[object], options: object, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `Compute`, completed from its `[pools.NAME]` table.

    Given specs, groups and options are not changed. A pool without a table is not changed either: `[defaults]` apply to
    cells, and scripts are explicit.

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
    if "groups" not in found and fields.get("provider", found.get("provider")) is None:
        found |= default_provider(config)
    return {**found, **fields}


def default_provider(config: Config) -> dict[str, Any]:
    """Return the keyword for the provider of a pool that names none: local nodes, with the settings of their table."""
    return {"provider": config.provider(LOCAL)} if LOCAL in config.providers else {}


def with_named_settings(spec: Spec) -> Spec:
    """Return a spec with the settings of the tables that its provider and its volumes name.

    These are `[providers.NAME]`, if there is one, and `[storages.NAME]`.

    Raises:
        ProviderMissingError: the provider is the name of no table, and of no installed provider.
        SpecError: a storage is the name of no table, or a file, a key or a value is wrong.
    """
    if any(isinstance(volume.storage, str) for volume in spec.volumes):
        config = load()
        spec = replace(spec, volumes=tuple(_with_storage(volume, config) for volume in spec.volumes))
    if not isinstance(spec.provider, str):
        return spec
    config = load()
    if spec.provider in config.providers:
        return replace(spec, provider=config.provider(spec.provider))
    check_provider_name(spec.provider)
    return spec


def _with_storage(volume: Volume, config: Config) -> Volume:
    return replace(volume, storage=config.storage(volume.storage)) if isinstance(volume.storage, str) else volume
