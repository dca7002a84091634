"""Merged view of the files: the effective value of each key, and its location."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from skyward.config.files import ConfigValue, File, find_files
from skyward.config.providers import make_provider
from skyward.config.storages import make_storage
from skyward.config.values import GROUPS, PROVIDER, is_of_nodes, read_field, unknown_field
from skyward.errors import SpecError
from skyward.specs import Spec, Storage, resolve_groups
from skyward.specs.paths import compute_fields
from skyward.values.validation import closest

__all__ = ["Config", "load"]

TABLES: Final = ("cells", "defaults", "pools", "providers", "storages")
_NESTED: Final = frozenset({"image", "worker"})
"""Fields of a pool that are tables of fields."""


@dataclass(frozen=True)
class Config:
    """Merged files. Values are validated on access.

    Attributes:
        files: parsed files, lowest precedence first.
    """

    files: tuple[File, ...] = ()

    def __post_init__(self) -> None:
        for file in self.files:
            for name, table in file.tables.items():
                found = ConfigValue(table, file, (name,))
                if name not in TABLES:
                    raise found.wrong(f"there is no such table; {closest(name, TABLES)}")
                _table(found)

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of the pools that have a table, in the order of the files."""
        return tuple(dict.fromkeys(name for file in self.files for name in _table(_get(file, "pools"))))

    @property
    def providers(self) -> tuple[str, ...]:
        """Names of the providers that have a table, in the order of the files."""
        return tuple(dict.fromkeys(self._provider_names()))

    def provider_table(self, name: str) -> str:
        """Return the place of the table of a provider: that of the file that applies."""
        return self._provider_tables(name)[-1].where

    def provider(self, name: str) -> object:
        """Return the settings of the provider of that name: from its table, or of an installed one that needs none.

        Raises:
            SpecError: there is no such provider, or its settings are missing or wrong.
        """
        return self._provider(name) if name in self.providers else read_field(PROVIDER, name, Path())

    @property
    def storages(self) -> tuple[str, ...]:
        """Names of the storages that have a table, in the order of the files."""
        return tuple(dict.fromkeys(name for file in self.files for name in _table(_get(file, "storages"))))

    def storage(self, name: str) -> Storage:
        """Return the storage of a `[storages.NAME]` table.

        Raises:
            SpecError: there is no such table, or a key or a value is wrong.
        """
        if name not in self.storages:
            raise SpecError(
                f"There is no storage {name!r}: write a table `[storages.{name}]` in skyward.toml; "
                f"{closest(name, self.storages)}"
            )
        return make_storage(name, self._merged("storages", name))

    def _merged(self, *key: str) -> dict[str, ConfigValue]:
        """Return the keys of a table, of all files."""
        return {name: found for file in self.files for name, found in _below(_get(file, *key))}

    def cells(self) -> dict[str, ConfigValue]:
        """Return the fields of `[cells]` by name, as written."""
        return {name: found for file in self.files for name, found in _below(_get(file, "cells"))}

    def pool(self, name: str) -> dict[str, ConfigValue]:
        """Return the fields of a pool: values by dotted path of a field of `Compute`, such as "nodes" or "image.pip".

        Raises:
            SpecError: a key is unknown, or its value is not allowed; the message has the file, the line and the key.
        """
        leaves: dict[str, ConfigValue] = {}
        for above in (("defaults",), ("pools", name)):
            for file in self.files:
                leaves |= dict(_fields(_get(file, *above)))
        groups = leaves.pop(GROUPS, None)
        found = {path: self._checked(path, leaf) for path, leaf in leaves.items()}
        return found if groups is None else self._grouped(groups, found)

    def _grouped(self, groups: ConfigValue, pool: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
        """Return the fields of a pool with groups; its own fields about nodes are defaults of each group."""
        above = {path: found.value for path, found in pool.items() if is_of_nodes(path)}

        def specs(table: ConfigValue) -> list[Spec]:
            """Return the spec of a table, with each of its providers."""
            own = {path: self._checked(path, leaf).value for path, leaf in _fields(table, of_group=True)}
            found = compute_fields({**above, **own})
            several = found[PROVIDER] if isinstance(found.get(PROVIDER), tuple) else ()
            try:
                return [Spec(**{**found, PROVIDER: each}) for each in several] or [Spec(**found)]
            except SpecError as error:
                raise table.wrong(str(error)) from None

        value = {name: [spec for table in _each(group) for spec in specs(table)] for name, group in _below(groups)}
        try:
            resolve_groups((), None, {GROUPS: value})
        except SpecError as error:
            raise groups.wrong(str(error)) from None
        rest = {path: found for path, found in pool.items() if not is_of_nodes(path)}
        return {**rest, GROUPS: replace(groups, value=value)}

    def _checked(self, path: str, leaf: ConfigValue) -> ConfigValue:
        names = _names(leaf.value) if path == PROVIDER else []
        if len(names) > 1:
            return replace(leaf, value=tuple(self._checked(path, replace(leaf, value=name)).value for name in names))
        if names:
            leaf = replace(leaf, value=names[0])
        if path == PROVIDER and leaf.value in self._provider_names():
            return ConfigValue(self._provider(leaf.value), leaf.file, leaf.key)
        try:
            return ConfigValue(read_field(path, leaf.value, leaf.file.path.parent), leaf.file, leaf.key)
        except SpecError as error:
            raise leaf.wrong(str(error)) from None

    def _provider_names(self) -> list[str]:
        return [name for file in self.files for name in _table(_get(file, "providers"))]

    def _provider_tables(self, name: str) -> list[ConfigValue]:
        return [_get(file, "providers", name) for file in self.files if name in _table(_get(file, "providers"))]

    def _provider(self, name: str) -> object:
        """Return the settings of the provider that a `[providers.NAME]` table describes."""
        places = self._provider_tables(name)
        return make_provider(name, places[-1], {key: each for place in places for key, each in _below(place)})


def load(start: Path | None = None) -> Config:
    """Read the user's files.

    Raises:
        SpecError: a file cannot be read, is not TOML, or has an unknown table.
    """
    return Config(find_files(start))


def _names(raw: object) -> list[Any]:
    """Return the names of the alternatives that a value lists: `"slurm,aws"`, `["slurm", "aws"]`; empty for others."""
    if isinstance(raw, str):
        return [name for each in raw.split(",") if (name := each.strip())]
    return list(raw) if isinstance(raw, list) else []


def _get(file: File, *key: str) -> ConfigValue:
    """Return a table of a file; an empty one if it is missing."""
    value: Any = file.tables
    for depth, part in enumerate(key):
        value = _table(ConfigValue(value, file, key[:depth])).get(part, {})
    return ConfigValue(value, file, key)


def _table(found: ConfigValue) -> Mapping[str, Any]:
    if not isinstance(found.value, Mapping):
        raise found.wrong(f"it must be a table, with `[{found.name}]` above its keys.")
    return found.value


def _below(found: ConfigValue) -> Iterator[tuple[str, ConfigValue]]:
    for name, value in _table(found).items():
        yield name, ConfigValue(value, found.file, (*found.key, name))


def _each(found: ConfigValue) -> Iterator[ConfigValue]:
    """Yield the tables of a list of tables, or a single table."""
    if not isinstance(found.value, list):
        yield found
        return
    for position, value in enumerate(found.value):
        yield ConfigValue(value, found.file, (*found.key, position))


def _fields(table: ConfigValue, *, of_group: bool = False) -> Iterator[tuple[str, ConfigValue]]:
    """Yield the fields of a pool or a group, with `image` and `worker` field by field."""
    for name, found in _below(table):
        if name in _NESTED:
            for inner, leaf in _below(found):
                yield _known(f"{name}.{inner}", leaf, of_group)
        else:
            yield _known(name, found, of_group)


def _known(path: str, leaf: ConfigValue, of_group: bool) -> tuple[str, ConfigValue]:
    if why := unknown_field(path, of_group=of_group):
        raise leaf.wrong(why)
    return path, leaf
